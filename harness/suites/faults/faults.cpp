#include "harness/suites/faults/faults.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/plan/config/field.h"
#include "harness/run/libraries.h"
#include "harness/suites/engine/suite.h"
#include "harness/suites/faults/judge.h"

namespace lockstep {
namespace faults {
namespace {

// The section `faults` of a config.

struct FaultsConfig {
  std::vector<std::string> tries;  ///< of kTries
  double threshold_s = 0.5;        ///< T of the suite
  int64_t control_repeats = 1;        ///< how often each control run runs
  int64_t dead = 200;              ///< kills of one of eight ranks
  int64_t hung = 200;              ///< stops of one of three
  double hung_threshold_s = 1;
  int64_t steady_steps = 10000;
  double steady_threshold_s = 0.05;
  double straggle_share = 0.01;    ///< of the steps, at which a rank is late by half the threshold
  double deadline_s = 30;
  int64_t seed = 0;
  std::string mistake;             ///< of the bench, to see it found; empty: none
};

/// What can be tried, in the order in which it is.
const std::vector<std::string_view> kTries = {"wrong", "control", "dead", "hung", "steady"};

constexpr Range kSeconds{0.01, 3600}, kCount{1, 1e6};

std::vector<std::string_view> mistake_names() { return {"", "unwatched"}; }

#define FAULTS(key, member, ...)                                                                \
  Field<FaultsConfig> {                                                                         \
    {"faults." key, __VA_ARGS__}, [](FaultsConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
const std::array kFields{
    FAULTS("threshold_s", threshold_s, kSeconds, "s",
        "longest time without progress in a step or an evaluation of the suite's programs; a save and the "
        "teardown have twice as long"),
    FAULTS("control_repeats", control_repeats, kCount, "runs", "runs of each correct program, the control runs"),
    FAULTS("dead", dead, kCount, "kills", "times that one of eight ranks is killed at a random moment"),
    FAULTS("hung", hung, kCount, "stops", "times that one of three ranks is stopped at a random moment"),
    FAULTS("hung_threshold_s", hung_threshold_s, kSeconds, "s", "`faults.threshold_s` of the runs with a stopped rank"),
    FAULTS("steady_steps", steady_steps, kCount, "steps", "length of the run with stragglers, which must raise no alarm"),
    FAULTS("steady_threshold_s", steady_threshold_s, kSeconds, "s",
        "threshold of that run, in which every rank is also late at every step by up to a twenty-fifth of it"),
    FAULTS("straggle_share", straggle_share, Range{0, 1}, "",
        "share of that run's steps at which a rank is late by half the threshold"),
    FAULTS("deadline_s", deadline_s, kSeconds, "s", "a program that takes longer is killed, which is a fault"),
    FAULTS("seed", seed, Range{0, 1e6}, "", "seed of ranks and moments"),
    FAULTS("mistake", mistake, {}, "",
        "mistake planted in the bench, to check that it is found: `unwatched` sees no hang; empty: none", Words::any,
           Setter::user, &mistake_names),
};
#undef FAULTS

FaultsConfig read_faults_config(const SuiteSource& source, Problems& problems) {
  FaultsConfig config;
  SuiteSource plain = source;
  // Names until 0.1.
  for (Entry& entry : plain.entries) {
    if (entry.key == "faults.twin_repeats") entry.key = "faults.control_repeats";
    for (YamlNode& item : entry.value.items) {
      if (item.text == "twin") item.text = "control";
    }
  }
  config.tries = take_words(plain, "faults.tries", kTries, problems);
  if (config.tries.empty()) config.tries.assign(kTries.begin(), kTries.end());
  read_fields<FaultsConfig>(plain, kFields, config, problems);
  return config;
}

nlohmann::ordered_json faults_schema() {
  const FaultsConfig defaults;
  SchemaJson schema = object_schema();
  add_fields(schema, kFields, defaults);
  schema["properties"]["tries"] = words_schema(kTries,
      "what is tried: `wrong`, programs with one fault each; `control`, their correct versions; `dead` and "
      "`hung`, kills and stops at random moments; `steady`, stragglers that must raise no alarm; default all");
  return schema;
}

/// Where the suite's faults act: the first, a middle and the last rank and step.
struct Position {
  int rank;
  int64_t step;
};
constexpr std::array kPositions{Position{0, 0}, Position{1, 2}, Position{2, 4}};
constexpr int64_t kEndless = 1'000'000;
constexpr double kToldWithin_s = 0.25;  ///< of the survivors of a dead rank
constexpr double kHungWithin = 1.1;     ///< thresholds

/// A port of this machine that is bound for as long as the object lives.
class HeldPort {
 public:
  explicit HeldPort(bool listens) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    const bool held = socket_ >= 0 && ::bind(socket_, any, size) == 0 && (!listens || ::listen(socket_, 16) == 0) &&
                      ::getsockname(socket_, any, &size) == 0;
    if (!held) throw MachineError(std::string("cannot hold a port: ") + std::strerror(errno));
    port_ = ntohs(address.sin_port);
  }
  ~HeldPort() { ::close(socket_); }
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;
  int port() const { return port_; }

 private:
  int socket_, port_ = 0;
};

struct Planned {
  const FaultKind* kind = nullptr;  ///< null: dead, hung, steady
  Order order;
  std::string what;  ///< of kTries
  int64_t number = 0;
};

/// Plays programs on the ranks of one slot.
class Player {
 public:
  explicit Player(const Bench::Options& options) : bench_(options) {}

  std::vector<CaseResult> run(const std::string& trial, const Planned& planned) {
    if (planned.what == "dead") return {dead(planned)};
    if (planned.what == "hung") return {hung(planned)};
    if (planned.what == "steady") return {steady(planned)};
    return {of_kind(trial, planned)};
  }

 private:
  CaseResult of_kind(const std::string& trial, const Planned& planned) {
    Order order = planned.order;
    const FaultKind& kind = *planned.kind;
    std::unique_ptr<HeldPort> port;
    if (kind.family == "meeting") port = std::make_unique<HeldPort>(kind.name != "store_dead");
    if (port) order.port = port->port();
    const bool compares = kind.notice == Notice::compared;
    const Records expected = compares ? records_of(plain_order(order)) : Records{};
    const double continues_s = order.wrong ? 2 * order.threshold_s : order.threshold_s / 2;
    const auto go_on = [&](const Ongoing& ongoing) {
      if (kind.name == "continued_late" && ongoing.acted_at > 0 && monotonic_s() > ongoing.acted_at + continues_s)
        ::kill(ongoing.pids.at(static_cast<std::size_t>(order.rank)), SIGCONT);
    };
    const Played played = bench_.play(order, go_on);
    const Said said = said_of(played, expected, compares ? records_now(order) : Records{});
    CaseResult result = order.wrong ? judge_wrong(kind, order, played, said) : judge_control(kind, order, played, said);
    if (order.wrong)
      note_noticed(trial, kind, played, said, result);
    else
      note_control(std::string(kind.name), result.verdict == CaseVerdict::good);
    return result;
  }

  static void note_noticed(const std::string& trial, const FaultKind& kind, const Played& played, const Said& said, const CaseResult& result) {
    Noticed one{std::string(kind.name), said.anything ? std::string(to_word(said.notice)) : "", -1, said.words, 0, result.outcome, result.verdict};
    if (said.at > 0 && played.acted_at > 0) one.after_s = std::max(0.0, said.at - played.acted_at);
    one.steps_lost = std::max<int64_t>(0, played.finished_steps - (played.saved_step + 1));
    note(trial, one);
  }

  using Records = std::vector<std::vector<std::string>>;
  static Order plain_order(const Order& order) {
    Order plain = order;
    plain.wrong = false;
    return plain;
  }
  Records records_now(const Order& order) const {
    Records records;
    for (int rank = 0; rank < order.world; ++rank) records.push_back(bench_.record_of(rank));
    return records;
  }
  Records records_of(const Order& order) {
    const Played played = bench_.play(order);
    return played.finished() ? records_now(order) : Records{};
  }

  /// A moment that no rank chooses: after the second step of all, and up to ten milliseconds later.
  Disturb at_random(const Planned& planned, int signal, double& struck_at) const {
    return [&planned, signal, &struck_at, from_s = 0.0](const Ongoing& ongoing) mutable {
      if (struck_at > 0) return;
      int64_t fewest = ongoing.heartbeats.step(0);
      for (int rank = 1; rank < ongoing.heartbeats.world_size(); ++rank) fewest = std::min(fewest, ongoing.heartbeats.step(rank));
      if (fewest < 2) return;
      const double now = monotonic_s();
      if (from_s == 0) from_s = now + 0.01 * unit_interval(mix64(keyed(uint64_t{11}, static_cast<uint64_t>(planned.number))));
      if (now < from_s) return;
      struck_at = monotonic_s();
      ::kill(ongoing.pids.at(static_cast<std::size_t>(planned.order.rank)), signal);
    };
  }

  CaseResult dead(const Planned& planned) {
    double struck_at = 0;
    const Played played = bench_.play(planned.order, at_random(planned, SIGKILL, struck_at));
    const std::string who = fmt::format("rank {} of {} was killed", planned.order.rank, planned.order.world);
    if (struck_at == 0) return {"not reached", CaseVerdict::undecided, 1, who + ": the ranks did not come to it"};
    const std::string word = fmt::format("rank {} was killed by signal 9", planned.order.rank);
    bool all_told = true, in_time = true;
    for (int rank = 0; rank < planned.order.world; ++rank) {
      if (rank == planned.order.rank) continue;
      const auto r = static_cast<std::size_t>(rank);
      const double took_s = played.error_at[r] - struck_at;
      if (played.error_at[r] > 0) measured().sample("from a kill to a survivor's error", took_s);
      if (played.run.ended_at[r] > 0) measured().sample("from a kill to a survivor's end, its result on the disk", played.run.ended_at[r] - struck_at);
      in_time = in_time && played.error_at[r] > 0 && took_s <= kToldWithin_s;
      all_told = all_told && played.results[r].error.find(word) != std::string::npos;
    }
    note_count("kills after which every survivor named the dead rank", all_told);
    note_count("kills after which every survivor had its error within 250 ms", in_time);
    const bool named = played.run.failure && played.run.failure->kind == FailureKind::died && played.run.failure->rank == planned.order.rank;
    if (!named) return {"named wrongly", CaseVerdict::fault, 1, who + ": told was " + (played.run.failure ? played.run.failure->message : "nothing")};
    if (!all_told) return {"not told", CaseVerdict::fault, 1, who + ": a survivor's error does not name it"};
    if (!played.left_behind.empty()) return {"left behind", CaseVerdict::fault, 1, fmt::format("{}: {}", who, fmt::join(played.left_behind, ", "))};
    return {"named, all told", CaseVerdict::good, 1, ""};
  }

  CaseResult hung(const Planned& planned) {
    double struck_at = 0;
    const Played played = bench_.play(planned.order, at_random(planned, SIGSTOP, struck_at));
    const std::string who = fmt::format("rank {} was stopped", planned.order.rank);
    if (struck_at == 0) return {"not reached", CaseVerdict::undecided, 1, who + ": the ranks did not come to it"};
    if (!played.run.alarm) return {"missed", CaseVerdict::fault, 1, who + ": the watch saw nothing"};
    const double took_s = played.run.alarm_at - struck_at;
    measured().sample("from a stop to the alarm", took_s);
    note_count("stops found within the threshold and a tenth", took_s <= kHungWithin * planned.order.threshold_s);
    const bool right = played.run.alarm->standstill.rank == planned.order.rank;
    note_count("stops whose rank was named", right);
    if (!right) return {"named wrongly", CaseVerdict::fault, 1, fmt::format("{}: told was rank {}: {}", who, played.run.alarm->standstill.rank, played.run.alarm->message)};
    if (!played.left_behind.empty()) return {"left behind", CaseVerdict::fault, 1, fmt::format("{}: {}", who, fmt::join(played.left_behind, ", "))};
    return {"named", CaseVerdict::good, 1, ""};
  }

  CaseResult steady(const Planned& planned) {
    const Played played = bench_.play(planned.order);
    if (played.run.late) {
      const std::string slow = fmt::format("the bench ended it after {:.0f} s and {} of {} steps, in which nothing was said", played.run.seconds,
                                           played.finished_steps, planned.order.steps);
      if (!played.run.alarm) return {"too slow", CaseVerdict::undecided, 1, slow};
    }
    const std::string alarm = played.run.alarm ? played.run.alarm->message : played.run.failure ? played.run.failure->message : "";
    note_count(fmt::format("runs of {} steps with stragglers that ended without an alarm", planned.order.steps),
                   alarm.empty() && played.finished());
    if (!alarm.empty()) {
      const int64_t steps = played.finished_steps;
      return {"false alarm", CaseVerdict::fault, 1, fmt::format("after {} steps: {}", steps, alarm)};
    }
    if (!played.finished()) return {"not finished", CaseVerdict::fault, 1, "the run did not finish"};
    return {"silent", CaseVerdict::good, 1, ""};
  }

  Bench bench_;
};

class FaultsSuite : public Suite {
 public:
  explicit FaultsSuite(FaultsConfig config) : config_(std::move(config)) {}

  std::string subject() const override {
    const std::string places = fmt::format("{} faults at {} places each", fault_kinds().size(), kPositions.size());
    std::vector<std::string> parts;
    if (tries("wrong")) parts.push_back(places);
    if (tries("control")) parts.push_back(tries("wrong") ? "their control runs" : "control runs of " + places);
    if (tries("dead")) parts.push_back(fmt::format("{} deaths of one of 8 ranks", config_.dead));
    if (tries("hung")) parts.push_back(fmt::format("{} stops of one of 3 ranks", config_.hung));
    if (tries("steady")) parts.push_back("steps with stragglers");
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  std::vector<std::string> plan() const override {
    std::vector<std::string> lines;
    for (const FaultKind& kind : fault_kinds())
      lines.push_back(fmt::format("{}: {}; the control run: {}; expected: {}", kind.name, kind.wrong, kind.control, to_word(kind.notice)));
    return lines;
  }

  std::vector<Trial> trials(const SuiteRun&) override {
    std::vector<Trial> trials;
    for (const bool wrong : {true, false}) {
      if (!tries(wrong ? "wrong" : "control")) continue;
      for (const FaultKind& kind : fault_kinds()) add_suite(kind, wrong, trials);
    }
    for (int64_t n = 0; tries("dead") && n < config_.dead; ++n) add_struck("dead", 8, config_.threshold_s * 10, n, trials);
    for (int64_t n = 0; tries("hung") && n < config_.hung; ++n) add_struck("hung", 3, config_.hung_threshold_s, n, trials);
    if (tries("steady")) add_steady(trials);
    return trials;
  }

  Facts facts(const Measurements& m) const override { return Figures(m).facts(); }
  std::vector<SuiteTable> tables(const Measurements& m) const override { return Figures(m).tables(); }
  std::vector<SuiteChart> charts(const Measurements& m) const override {
    Order order;
    order.threshold_s = config_.threshold_s;
    return Figures(m).charts(order.threshold_s, order.disk_threshold_s());
  }

  std::vector<std::string> notes(const Measurements&) const override {
    return {"Sockets are swept by the processes that hold them: one that the kernel keeps for a while after both ends have closed "
            "is nobody's.",
            "Library versions, clocks and thread counts that differ are what a rank says of itself, not other machines."};
  }

 private:
  Bench::Options bench_options(const Slot& slot) const {
    return {rank_program_path(), slot.folder(), config_.deadline_s, slot.run().stop_requested, config_.mistake != "unwatched"};
  }

  void add(const Planned& planned, Trial trial, std::vector<Trial>& trials) {
    trial.run = [this, planned, name = trial.name](Slot& slot) {
      return slot.keep<Player>([&] { return Player(bench_options(slot)); }).run(name, planned);
    };
    trials.push_back(std::move(trial));
  }

  bool tries(std::string_view what) const { return std::ranges::find(config_.tries, what) != config_.tries.end(); }
  void add_suite(const FaultKind& kind, bool wrong, std::vector<Trial>& trials) {
    for (std::size_t place = 0; place < kPositions.size(); ++place) {
      const Position position = kPositions[place];
      for (int64_t again = 0; again < (wrong ? 1 : config_.control_repeats); ++again) {
        Planned planned;
        planned.kind = &kind;
        planned.what = wrong ? "wrong" : "control";
        planned.number = again;
        planned.order.kind = kind.name;
        planned.order.wrong = wrong;
        planned.order.rank = position.rank;
        planned.order.step = position.step;
        planned.order.threshold_s = config_.threshold_s;
        planned.order.seed = config_.seed + again;
        planned.order.checked = kind.checked;
        planned.order.records = kind.notice == Notice::compared;
        std::string name = fmt::format("{}:{}:{}", planned.what, kind.name, place);
        if (!wrong) name += fmt::format(":{}", again);
        const bool silent = kind.notice == Notice::hung || kind.notice == Notice::slow;
        add(planned, {name, wrong ? std::string(kind.name) : fmt::format("control of {}", kind.name),
                      fmt::format("rank {}, step {}", position.rank, position.step), silent && wrong ? 2 * config_.threshold_s : 0.3}, trials);
      }
    }
  }

  void add_struck(const char* what, int world, double threshold_s, int64_t n, std::vector<Trial>& trials) {
    Planned planned;
    planned.what = what;
    planned.number = n;
    planned.order.world = world;
    planned.order.rank = static_cast<int>(mix64(keyed(static_cast<uint64_t>(config_.seed), static_cast<uint64_t>(n))) % static_cast<uint64_t>(world));
    planned.order.steps = kEndless;
    planned.order.threshold_s = threshold_s;
    planned.order.disk_thresholds = 1;  // so that T is the threshold wherever the rank is struck
    planned.order.records = false;
    const double estimate_s = planned.what == "hung" ? threshold_s + 0.5 : 1;
    add(planned, {fmt::format("{}:{}", what, n), what, fmt::format("one of {} ranks", world), estimate_s}, trials);
  }

  void add_steady(std::vector<Trial>& trials) {
    Planned planned;
    planned.what = "steady";
    planned.order.steps = config_.steady_steps;
    planned.order.threshold_s = config_.steady_threshold_s;
    planned.order.straggle_share = config_.straggle_share;
    planned.order.saves = false;  // a disk that others use too may take longer than such a threshold
    planned.order.jitter_s = config_.steady_threshold_s / 25;
    planned.order.records = false;
    add(planned, {"steady:0", "stragglers and jitter", "three ranks", 0.01 * static_cast<double>(config_.steady_steps)}, trials);
  }

  FaultsConfig config_;
};

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  FaultsConfig config = read_faults_config(source, problems);
  return problems.empty() ? std::make_unique<FaultsSuite>(std::move(config)) : nullptr;
}

}  // namespace
}  // namespace faults

const SuiteKind& faults_suite() {
  static const SuiteKind kKind{
      "faults", "programs with one fault each and their control runs, on real ranks: who notices, when, in which words",
      &faults::make, &faults::faults_schema};
  return kKind;
}

}  // namespace lockstep
