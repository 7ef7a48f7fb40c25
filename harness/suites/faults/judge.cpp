#include "harness/suites/faults/judge.h"

#include <dirent.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include "harness/base/numbers.h"
#include "harness/jobs/orders/faults/order.h"
#include "harness/run/process_state.h"
#include "harness/run/run_folder.h"

namespace lockstep::faults {
namespace {

namespace fs = std::filesystem;

/// Inodes of sockets that listen on TCP.
std::set<std::string> listening_sockets() {
  std::set<std::string> inodes;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, skipped, inode;
      words >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> skipped;
      words >> inode;
      if (state == "0A") inodes.insert(inode);
    }
  }
  return inodes;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) names.insert(entry.path().filename().string());
  return names;
}

std::vector<int> processes() {
  std::vector<int> all;
  for (const std::string& name : names_in("/proc")) {
    if (std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c) != 0; })) all.push_back(std::stoi(name));
  }
  return all;
}

/// Which processes hold one of these sockets.
std::set<int> holders_of(const std::string& inode, const std::vector<int>& all) {
  std::set<int> holders;
  const std::string target = "socket:[" + inode + "]";
  for (const int pid : all) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
      std::error_code gone;
      if (fs::read_symlink(entry.path(), gone) == target) holders.insert(pid);
    }
  }
  return holders;
}

/// What a run's folder may hold when its ranks have ended.
bool belongs(const std::string& name) {
  constexpr std::array<std::string_view, 8> kNames = {"run.json", "heartbeat", "acted", "store", "rank-", "state-", "flight", "stacks-"};
  const bool temporary = name.ends_with(".tmp") || name.find(".tmp.") != std::string::npos;
  return !temporary && std::ranges::any_of(kNames, [&](std::string_view known) { return name.starts_with(known); });
}

}  // namespace

static Before look_round() { return {listening_sockets(), names_in("/dev/shm")}; }

std::vector<std::string> left_behind(const Before& before, int group, const std::string& run_dir) {
  std::vector<std::string> found;
  const std::vector<int> all = processes();
  std::set<int> of_group;
  for (const int pid : all) {
    if (::getpgid(pid) != group) continue;
    of_group.insert(pid);
    found.push_back(fmt::format("process {} ({})", pid, process_state(pid).state));
  }
  for (const std::string& inode : listening_sockets()) {
    if (before.listening.contains(inode)) continue;
    const std::set<int> holders = holders_of(inode, all);
    const bool ours = std::ranges::any_of(holders, [&](int pid) { return of_group.contains(pid); });
    if (ours) found.push_back("listening socket " + inode);
  }
  for (const std::string& name : names_in("/dev/shm")) {
    const bool libraries = name.find("torch") != std::string::npos || name.find("gloo") != std::string::npos;
    if (libraries && !before.shared_memory.contains(name)) found.push_back("shared memory " + name);
  }
  for (const std::string& name : names_in(run_dir)) {
    if (!belongs(name)) found.push_back("file " + name);
  }
  return found;
}

namespace {

/// Before the first step LibTorch's threads, Gloo's connections and the preflight check take their time; the kind that hangs there
/// has a threshold of its own.
double load_s(const Order& order) {
  return order.kind == "blocked_in_store" || order.kind == "half_open" ? 4 * order.threshold_s : 10;
}

/// A run that ends by itself may have so many steps that they take longer than any fault.
double long_run_s(const Order& order) {
  constexpr double kStep_s = 0.2;  // on a machine with other work, stragglers and all
  constexpr int64_t kMost = 100'000;
  return order.steps <= kMost ? kStep_s * static_cast<double>(order.steps) : 0;
}

/// The step of the file that the rank saved last; -1: none.
int64_t saved_in(const std::string& dir, int rank) {
  std::ifstream file(fmt::format("{}/state-{}", dir, rank), std::ios::binary);
  int64_t step = -1;
  file.read(reinterpret_cast<char*>(&step), sizeof step);
  return file ? step : -1;
}

double time_in(const std::string& path) {
  std::ifstream file(path);
  double seconds = 0;
  return file >> seconds ? seconds : 0;
}

RankResult result_in(const std::string& dir, int rank) {
  try {
    return read_rank_result(rank_result_path(dir, rank));
  } catch (const std::runtime_error&) {
    return {};  // none, or one that the rank died over: its end says so
  }
}

}  // namespace

bool Played::finished() const {
  return !run.late && std::ranges::all_of(results, [](const RankResult& result) { return result.status == "finished"; });
}

Bench::Bench(const Options& options) : options_(options), runs_(options.rank_program, options.work, options.stop_requested) {}

Played Bench::play(const Order& order, const Disturb& disturb) {
  if (!dir_.empty()) fs::remove_all(dir_);
  dir_ = runs_.folder(fmt::format("program-{}", ++rounds_));
  const Before before = look_round();
  RankRun asked;
  asked.world_size = order.world;
  if (options_.watches)
    asked.thresholds = {load_s(order), order.threshold_s, order.threshold_s, order.disk_threshold_s(), order.disk_threshold_s(), 0};
  asked.deadline_s = options_.deadline_s + long_run_s(order);
  // The program kills its own rank, where that is the fault, and another in its recovery; where there is no such program the suite does.
  const bool dies = order.kind.empty() || (order.wrong && order.kind.starts_with("kill"));
  asked.kills = [&](int rank) { return dies && (rank == order.rank || (order.kind == "killed_in_recovery" && rank == (order.rank + 1) % order.world)); };
  double acted_at = 0;
  std::vector<int> pids;
  RunHooks hooks;
  hooks.on_started = [&](const OngoingRun& run) { pids = run.pids; };
  hooks.on_look = [&](const OngoingRun& run) {
    if (!disturb) return false;
    if (acted_at == 0) acted_at = time_in(dir_ + "/acted");
    disturb({run.heartbeats, run.pids, acted_at});
    return false;
  };
  Played played;
  played.run = runs_.run(dir_, {{"fault_case", order}}, asked, std::move(hooks));
  played.acted_at = time_in(dir_ + "/acted");
  std::vector<int64_t> saved, finished;
  for (int rank = 0; rank < order.world; ++rank) {
    played.results.push_back(result_in(dir_, rank));
    played.error_at.push_back(time_in(fmt::format("{}/rank-{}.error", dir_, rank)));
    saved.push_back(saved_in(dir_, rank));
    finished.push_back(played.run.heartbeats->step(rank));
  }
  played.saved_step = std::ranges::min(saved);
  played.finished_steps = std::ranges::min(finished);
  (void)flight_record(played.run);
  played.left_behind = left_behind(before, pids.empty() ? 0 : pids.front(), dir_);
  return played;
}

std::vector<std::string> Bench::record_of(int rank) const {
  std::vector<std::string> lines;
  std::ifstream file(fmt::format("{}/rank-{}.record", dir_, rank));
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

namespace {

/// A line of a record: step, name, the numbers' bits.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream text(line);
  for (std::string word; std::getline(text, word, '\t');) words.push_back(word);
  return words;
}

Notice notice_of(const std::string& words, FailureKind kind) {
  if (words.starts_with("comm_check: ")) return Notice::check;
  if (words.starts_with("nan_guard: ")) return Notice::guard;
  if (words.starts_with("audit: ")) return Notice::audit;
  if (words.starts_with("preflight check: ")) return Notice::preflight_check;
  return kind == FailureKind::died ? Notice::died : Notice::threw;
}

/// What every rank that lives has to say for itself.
bool said_everywhere(const FaultKind& kind) {
  return kind.notice == Notice::check || kind.notice == Notice::guard;
}

/// Ranks that ended without a word although they lived; an error of their own or one about a peer counts as a word.
std::vector<int> speechless(const Order& order, const Played& played) {
  std::vector<int> ranks;
  for (const RankResult& result : played.results) {
    const int rank = static_cast<int>(&result - played.results.data());
    const bool excused = rank == order.rank || (order.kind == "killed_in_recovery" && rank == (order.rank + 1) % order.world);
    if (!excused && result.error.empty() && result.status != "finished") ranks.push_back(rank);
  }
  return ranks;
}

CaseResult fault(std::string outcome, const std::string& sentence) {
  return {std::move(outcome), CaseVerdict::fault, 1, sentence};
}

std::string told(const Order& order) {
  return fmt::format("{} on rank {} at step {}", order.kind, order.rank, order.step);
}

std::string sweep_words(const Played& played) { return fmt::format("{}", fmt::join(played.left_behind, ", ")); }

}  // namespace

std::string first_difference(const std::vector<std::vector<std::string>>& expected,
                             const std::vector<std::vector<std::string>>& found) {
  std::optional<std::tuple<int64_t, std::size_t, std::size_t>> first;  // step, line, rank
  std::string words;
  for (std::size_t rank = 0; rank < std::min(expected.size(), found.size()); ++rank) {
    for (std::size_t line = 0; line < std::max(expected[rank].size(), found[rank].size()); ++line) {
      const bool both = line < expected[rank].size() && line < found[rank].size();
      if (both && expected[rank][line] == found[rank][line]) continue;
      const std::vector<std::string> a = both ? words_of(expected[rank][line]) : std::vector<std::string>{};
      const std::vector<std::string> b = both ? words_of(found[rank][line]) : std::vector<std::string>{};
      const int64_t step = both && !b.empty() ? std::stoll(b[0]) : 0;
      if (first && std::tuple(step, line, rank) >= *first) break;
      first = std::tuple(step, line, rank);
      std::size_t element = 2;
      while (element < std::min(a.size(), b.size()) && a[element] == b[element]) ++element;
      words = both ? fmt::format("rank {}, step {}: {} at element {}", rank, step, b.size() > 1 ? b[1] : "", element - 2)
                   : fmt::format("rank {} has {} lines of record, not {}", rank, found[rank].size(), expected[rank].size());
      break;
    }
  }
  return words;
}

Said said_of(const Played& played, const std::vector<std::vector<std::string>>& expected,
             const std::vector<std::vector<std::string>>& found) {
  Said said;
  if (played.run.alarm) {
    said = {played.run.alarm->slow ? Notice::slow : Notice::hung, true, played.run.alarm->standstill.rank, played.run.alarm->message,
            played.run.alarm_at};
  } else if (played.run.failure) {
    said = {notice_of(played.run.failure->message, played.run.failure->kind), true, played.run.failure->rank, played.run.failure->message,
            played.run.failure_at};
  } else if (played.finished()) {
    said.words = first_difference(expected, found);
    said.anything = !said.words.empty();
    said.notice = Notice::compared;
  }
  return said;
}

CaseResult judge_wrong(const FaultKind& kind, const Order& order, const Played& played, const Said& said) {
  const std::string who = told(order), expected = expected_words(kind, order);
  if (played.acted_at == 0) return {"not reached", CaseVerdict::undecided, 1, who + ": the program did not come to it"};
  if (!said.anything) return fault("missed", who + ": nobody noticed");
  if (played.run.late) return fault("late", who + ": the ranks had to be killed at the deadline; said was: " + said.words);
  if (said.notice != kind.notice)
    return fault("mistaken for another", fmt::format("{}: expected is {}, told was {}: {}", who, to_word(kind.notice), to_word(said.notice), said.words));
  const bool names_process = kind.notice == Notice::died || kind.notice == Notice::hung || kind.notice == Notice::slow ||
                             kind.notice == Notice::threw;
  if (said.words.find(expected) == std::string::npos || (names_process && said.rank != order.rank))
    return fault("named wrongly", fmt::format("{}: expected is rank {} and '{}', told was rank {}: {}", who, order.rank, expected, said.rank, said.words));
  if (said_everywhere(kind)) {
    for (const RankResult& result : played.results) {
      if (result.error.find(expected) == std::string::npos && !result.error.starts_with("lost its peer"))
        return fault("not on all ranks", fmt::format("{}: rank {} says '{}'", who, &result - played.results.data(), result.error));
    }
  }
  if (const std::vector<int> silent = speechless(order, played); !silent.empty())
    return fault("left without a word", fmt::format("{}: rank {} ended without an error", who, fmt::join(silent, ", ")));
  if (!played.left_behind.empty()) return fault("left behind", who + ": " + sweep_words(played));
  return {"named", CaseVerdict::good, 1, ""};
}

CaseResult judge_control(const FaultKind&, const Order& order, const Played& played, const Said& said) {
  const std::string who = fmt::format("the control run of {} (rank {}, step {})", order.kind, order.rank, order.step);
  if (played.run.alarm || played.run.failure) return fault("false alarm", who + ": " + said.words);
  if (!played.finished()) return fault("not finished", who + ": it did not finish");
  if (!played.left_behind.empty()) return fault("left behind", who + ": " + sweep_words(played));
  return {"silent", CaseVerdict::good, 1, ""};
}

namespace {

struct Family {
  std::string_view name, words;
};
constexpr auto kFamilies = std::to_array<Family>({{"process", "Processes that end"},
                                                  {"silence", "Processes that live and give no sign"},
                                                  {"collective", "Calls that do not fit"},
                                                  {"meeting", "How ranks meet"},
                                                  {"number", "Numbers"},
                                                  {"row", "Rows"},
                                                  {"disk", "Disks"}});

/// The smallest value that so many of a hundred do not exceed.
double percentile(const std::vector<double>& sorted, double of_hundred) {
  const auto place = static_cast<std::size_t>(std::ceil(of_hundred / 100 * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(place, 1, sorted.size()) - 1];
}

std::string ms(double seconds) { return fmt::format("{:.0f}", 1000 * seconds); }
std::string of_all(std::pair<int64_t, int64_t> count) { return fmt::format("{} of {}", count.first, count.second); }

/// Programs of one kind, or of a family.
struct Sum {
  std::set<std::string> by, outcomes;
  std::vector<double> after;  ///< seconds, sorted by finish()
  int64_t named = 0, all = 0, most_lost = 0;
  CaseVerdict verdict = CaseVerdict::good;
  std::string words;  ///< of the first in alphabetical order, since trials end in any; those of a fault before others

  void take(std::vector<Noticed> some) {
    std::ranges::sort(some, {}, &Noticed::words);
    for (const Noticed& one : some) {
      ++all;
      named += one.verdict == CaseVerdict::good ? 1 : 0;
      if (!one.by.empty()) by.insert(one.by);
      if (one.verdict != CaseVerdict::good) outcomes.insert(one.outcome);
      if (one.after_s >= 0) after.push_back(one.after_s);
      most_lost = std::max(most_lost, one.steps_lost);
      const bool worse = one.verdict == CaseVerdict::fault && verdict != CaseVerdict::fault;
      if (worse || (one.verdict == CaseVerdict::undecided && verdict == CaseVerdict::good)) verdict = one.verdict;
      if (worse || words.empty()) words = one.words;
    }
    std::ranges::sort(after);
  }
  std::string how_many() const {
    return of_all({named, all}) + (outcomes.empty() ? "" : fmt::format("; {}", fmt::join(outcomes, ", ")));
  }
  /// What only the finished run tells has no time.
  std::string middle() const { return after.empty() ? (named > 0 ? "at the end" : "") : ms(median_of_sorted(after)); }
  std::string most() const { return after.empty() ? "" : ms(after.back()); }
};

SuiteTable durations_table(const std::map<std::string, std::vector<double>>& seconds) {
  SuiteTable table{"Deaths and stops at random moments", "",
                        {{"duration", "", false}, {"n", "", true}, {"median", "ms", true}, {"99 of 100 within", "ms", true}, {"at most", "ms", true}}, {}, false};
  for (const auto& [name, values] : seconds) {
    std::vector<double> sorted = values;
    std::ranges::sort(sorted);
    table.rows.push_back({{name, std::to_string(sorted.size()), fmt::format("{:.1f}", 1000 * median_of_sorted(sorted)),
                           fmt::format("{:.1f}", 1000 * percentile(sorted, 99)), fmt::format("{:.1f}", 1000 * sorted.back())}});
  }
  return table;
}

ChartSeries series_of(std::string name, CaseVerdict verdict, const std::vector<double>& seconds) {
  ChartSeries series{std::move(name), verdict, {}};
  for (const double each : seconds) series.points.push_back({1000 * each, 0});
  return series;
}

/// Of many values the hundred percentiles, which are values too.
std::vector<double> thinned(std::vector<double> values) {
  std::ranges::sort(values);
  if (values.size() <= 100) return values;
  std::vector<double> some;
  for (int of_hundred = 1; of_hundred <= 100; ++of_hundred) some.push_back(percentile(values, of_hundred));
  return some;
}

}  // namespace

void note(const std::string& trial, const Noticed& one) { measured().keep("noticed", trial, one); }

void note_control(const std::string& kind, bool silent) {
  measured().keep("controls", kind);
  measured().add("controls of " + kind);
  if (silent) measured().add("silent controls of " + kind);
}

void note_count(const std::string& name, bool good) {
  measured().keep("counted", name);
  measured().add("all " + name);
  if (good) measured().add("good " + name);
}

Figures::Figures(const Measurements& m) : seconds_(m.samples()) {
  for (const auto& [trial, one] : m.entries("noticed")) {
    Noticed noticed = one.get<Noticed>();
    kinds_[noticed.kind].push_back(std::move(noticed));
  }
  for (const auto& [kind, there] : m.entries("controls")) controls_[kind] = {m.count("silent controls of " + kind), m.count("controls of " + kind)};
  for (const auto& [name, there] : m.entries("counted")) counts_[name] = {m.count("good " + name), m.count("all " + name)};
}

std::vector<std::pair<std::string, std::string>> Figures::facts() const {
  Facts facts;
  for (const auto& [name, count] : counts_) facts.emplace_back(name, of_all(count));
  return facts;
}

std::vector<SuiteTable> Figures::tables() const {
  SuiteTable families{"Who noticed, by family of faults",
                           "Of each wrong program: was it noticed as what it is, with rank, place and operation, and how long after the fault acted? A "
                           "control run does the right thing in the fault's place, and nothing may be said of it.",
                           {{"family", "", false}, {"kinds", "", true}, {"noticed by", "", false}, {"named", "", true}, {"median", "ms", true},
                            {"at most", "ms", true}, {"steps lost", "", true}, {"control runs silent", "", true}}, {}, false};
  SuiteTable kinds{"Who noticed what, when, in which words",
                        "Times are from the act to the first word. Steps lost: those that every rank had finished and that some rank has not saved, at most "
                        "in one program. The words are of one of the programs.",
                        {{"fault", "", false}, {"what it does", "", false}, {"noticed by", "", false}, {"named", "", true}, {"median", "ms", true},
                         {"at most", "ms", true}, {"steps lost", "", true}, {"control runs silent", "", true}, {"what was said", "", false}}, {}, false};
  for (const Family& family : kFamilies) {
    Sum whole;
    std::pair<int64_t, int64_t> whole_controls;
    int64_t tried = 0;
    for (const FaultKind& kind : fault_kinds()) {
      const auto found = kinds_.find(std::string(kind.name));
      const auto controls = controls_.find(std::string(kind.name));
      if (kind.family != family.name || (found == kinds_.end() && controls == controls_.end())) continue;
      Sum sum;
      if (found != kinds_.end()) sum.take(found->second), whole.take(found->second);
      const bool alarmed = controls != controls_.end() && controls->second.first < controls->second.second;
      if (alarmed) sum.verdict = whole.verdict = CaseVerdict::fault;
      if (controls != controls_.end()) whole_controls.first += controls->second.first, whole_controls.second += controls->second.second;
      ++tried;
      const bool wrong = sum.all > 0;
      kinds.rows.push_back({{std::string(kind.name), std::string(kind.wrong), fmt::format("{}", fmt::join(sum.by, " or ")), wrong ? sum.how_many() : "",
                             sum.middle(), sum.most(), wrong ? std::to_string(sum.most_lost) : "", controls == controls_.end() ? "" : of_all(controls->second),
                             sum.words}, sum.verdict});
    }
    if (tried == 0) continue;
    const bool wrong = whole.all > 0;
    families.rows.push_back({{std::string(family.words), std::to_string(tried), fmt::format("{}", fmt::join(whole.by, ", ")), wrong ? whole.how_many() : "",
                              whole.middle(), whole.most(), wrong ? std::to_string(whole.most_lost) : "",
                              whole_controls.second == 0 ? "" : of_all(whole_controls)}, whole.verdict});
  }
  std::vector<SuiteTable> tables;
  if (!families.rows.empty()) tables.push_back(std::move(families));
  if (!seconds_.empty()) tables.push_back(durations_table(seconds_));
  if (!kinds.rows.empty()) tables.push_back(std::move(kinds));
  return tables;
}

std::vector<SuiteChart> Figures::charts(double threshold_s, double disk_threshold_s) const {
  SuiteChart chart{"Time until somebody notices",
                        "From the fault's act to the first word, a dot for each program. Where a process gives no sign the threshold must pass first. Without a dot: "
                        "only the finished run tells.",
                        {"time from the act to the first word", "ms", true}, {}, true,
                        {{"T, threshold of a step", 1000 * threshold_s}, {"threshold of a save and of the teardown", 1000 * disk_threshold_s}}, {}};
  for (const Family& family : kFamilies) {
    ChartPanel panel{std::string(family.words), {}};
    for (const FaultKind& kind : fault_kinds()) {
      const auto found = kinds_.find(std::string(kind.name));
      if (kind.family != family.name || found == kinds_.end()) continue;
      Sum sum;
      sum.take(found->second);
      panel.series.push_back(series_of(std::string(kind.name), sum.verdict, sum.after));
    }
    if (!panel.series.empty()) chart.panels.push_back(std::move(panel));
  }
  SuiteChart durations{"Deaths and stops at random moments", "A dot for each duration; of more than a hundred their percentiles.",
                            {"time", "ms", true}, {}, true, {}, {{"", {}}}};
  for (const auto& [name, values] : seconds_) durations.panels.front().series.push_back(series_of(name, CaseVerdict::good, thinned(values)));
  std::vector<SuiteChart> charts;
  if (!chart.panels.empty()) charts.push_back(std::move(chart));
  if (!seconds_.empty()) charts.push_back(std::move(durations));
  return charts;
}

}  // namespace lockstep::faults
