// The toy run as processes that are told to end: to one rank, to all, to their launcher, once and often, at any
// moment.

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "harness/base/clock.h"
#include "harness/base/counted.h"
#include "harness/base/hashing.h"
#include "harness/base/keyed_draws.h"
#include "harness/lib/checkpoint/survey.h"
#include "harness/suites/checkpoint/resume/process_suite.h"
#include "harness/suites/checkpoint/resume/segments.h"

namespace lockstep::resume {
namespace {

using toy::Phase;

enum class To { one_rank, all_ranks, launcher };
constexpr const char* kTo[] = {"one rank", "all ranks", "the launcher"};

/// A run is somewhere when the signal comes.
struct Moment {
  const char *name, *words;
  Phase phase;
  int64_t step;  ///< the first one at which it may come
  bool asynchronous;
};
constexpr Moment kMoments[] = {
    {"start", "before the first step", Phase::start, 0, false},
    {"warm-up", "in a step of the warm-up", Phase::step, 2, false},
    {"step", "in a step", Phase::step, 29, false},
    {"evaluation", "in an evaluation", Phase::evaluation, 20, false},
    {"save", "when a save begins", Phase::save, 8, false},
    {"async", "while an asynchronous save is under way", Phase::saved, 8, true},
};

enum class Mistake { none, stops_alone, default_on_second };

struct PlannedSignal {
  Trial trial;
  int number = SIGTERM;
  To to = To::one_rank;
  int ranks = 1, target = 0;
  int times = 1;
  const Moment* moment = nullptr;  ///< null: a random one
  bool asynchronous = false;
  Mistake mistake = Mistake::none;
  uint64_t seed = 0;
};

/// Sends the signal, from whichever process.
void send(const PlannedSignal& planned, const Board& board) {
  const auto to_rank = [&](int rank) {
    const auto process = static_cast<pid_t>(board.rank(rank).process.load());
    if (process > 0) ::kill(process, planned.number);
  };
  if (planned.to == To::launcher) {
    if (const auto process = static_cast<pid_t>(board.launcher().load()); process > 0) ::kill(process, planned.number);
  } else if (planned.to == To::one_rank) {
    to_rank(planned.target);
  } else {
    for (int rank = 0; rank < planned.ranks; ++rank) to_rank(rank);
  }
}

class Preempted {
 public:
  Preempted(const ResumeConfig& config, const PlannedSignal& planned, toy::RunOptions options, Board& board,
            Cases& cases)
      : config_(config),
        planned_(planned),
        options_(std::move(options)),
        board_(board),
        cases_(cases),
        draws_(planned.seed) {
    options_.asynchronous = planned.asynchronous;
    // It goes on until it is told to end.
    options_.until = 1'000'000;
    options_.config.patience = 1'000'000;
    options_.config.planted.stops_alone = planned.mistake == Mistake::stops_alone;
    options_.config.planted.default_on_second = planned.mistake == Mistake::default_on_second;
  }

  void go() {
    ProcessRun run;
    run.options = options_;
    run.ranks = planned_.ranks;
    run.sync = config_.sync;
    run.signals = true;
    run.on_phase = [this](int rank, Phase phase, int64_t step) { in_rank(rank, phase, step); };
    const pid_t launcher = start_launcher(run, board_);
    double sent_s = planned_.moment == nullptr ? send_at_random() : 0;
    const Ended ended = wait_for({launcher}, config_.grace_s + config_.deadline_s);
    const double ended_s = monotonic_s();
    for (int rank = 0; rank < planned_.ranks; ++rank)
      if (board_.rank(rank).killed != 0 && !ended.hung) throw TrialDisturbed(fmt::format("rank {}", rank));
    if (planned_.moment != nullptr) sent_s = static_cast<double>(board_.rank(planned_.target).sent_us) / 1e6;
    const double took_s = ended_s - sent_s;
    measured().add("times", planned_.times);
    std::vector<std::string> problems = problems_of(ended, took_s);
    if (problems.empty() && planned_.mistake == Mistake::none) problems = resumed_differently();
    measured().at_least("ms", static_cast<double>(static_cast<int64_t>(took_s * 1000)));
    measured().add("runs");
    planned_.mistake == Mistake::none ? judge(problems) : judge_mistake(problems);
  }

 private:
  /// In a rank's process: the signal of a chosen moment, and the repeated ones in the midst of the last save.
  void in_rank(int rank, Phase phase, int64_t step) {
    const bool again = planned_.times > 1 && phase == Phase::last_save && rank == planned_.target;
    if (again) {
      for (int time = 1; time < planned_.times; ++time) send(planned_, board_);
    }
    if (planned_.moment == nullptr || sent_ || rank != planned_.target) return;
    if (phase != planned_.moment->phase || step < planned_.moment->step) return;
    sent_ = true;
    // Those to whom it goes must be there.
    if (planned_.to != To::one_rank) wait_ms(config_.deadline_s * 1000, [this] { return all_there(); });
    board_.rank(rank).sent_us = static_cast<int64_t>(monotonic_s() * 1e6);
    send(planned_, board_);
  }

  bool all_there() const {
    for (int rank = 0; rank < planned_.ranks; ++rank) {
      if (board_.rank(rank).process == 0) return false;
    }
    return board_.launcher() != 0;
  }

  /// Each at a moment of its own. Returns when the first one was sent.
  double send_at_random() {
    constexpr double kWithin_ms = 40, kApart_ms = 8;
    wait_ms(config_.deadline_s * 1000, [this] { return all_there(); });
    double first_s = 0;
    for (int time = 0; time < planned_.times; ++time) {
      wait_ms(unit_interval(draws_.bits(static_cast<uint64_t>(time))) * (time == 0 ? kWithin_ms : kApart_ms));
      if (time == 0) first_s = monotonic_s();
      send(planned_, board_);
    }
    return first_s;
  }

  int64_t newest() const {
    for (const checkpoint::Entry& entry :
         checkpoint::survey(checkpoint::posix_storage(), options_.root, true).entries) {
      if (entry.standing == checkpoint::Standing::whole) return entry.commit.step;
    }
    return 0;
  }

  /// How the ranks ended, against what was promised.
  std::vector<std::string> problems_of(const Ended& ended, double took_s) const {
    std::vector<std::string> problems;
    const int expected = 128 + planned_.number;
    const int status = ended.statuses[0];
    if (ended.hung) problems.push_back("hang: the run had not ended when the deadline was over");
    for (int rank = 0; rank < planned_.ranks; ++rank) {
      const RankBoard& own = board_.rank(rank);
      // Ranks that a signal ended never say how they ended.
      if (own.exit_code == 0)
        problems.push_back(
            fmt::format("torn by a signal: rank {} was ended {}", rank,
                        own.phase == static_cast<int>(Phase::last_save) ? "in its last save" : "in its run"));
      else if (own.ended_at != board_.rank(0).ended_at || own.exit_code != expected)
        problems.push_back(
            fmt::format("stopped without agreement: rank {} ended after step {} with {}, rank 0 after step {} with {}",
                        rank, own.ended_at.load(), own.exit_code.load(), board_.rank(0).ended_at.load(),
                        board_.rank(0).exit_code.load()));
    }
    if (!problems.empty()) return problems;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected)
      problems.push_back(fmt::format("wrong exit code: {} expected, status {} found", expected, status));
    if (took_s > config_.grace_s || board_.rank(0).in_grace == 0)
      problems.push_back(fmt::format("too late: {:.3f} s of a grace of {:g} s", took_s, config_.grace_s));
    if (newest() != board_.rank(0).ended_at)
      problems.push_back(fmt::format("not saved: the ranks agreed on step {}, the newest whole checkpoint is of {}",
                                     board_.rank(0).ended_at.load(), newest()));
    return problems;
  }

  /// Ten steps on, against a run that nobody told to end.
  std::vector<std::string> resumed_differently() {
    const int64_t stopped = board_.rank(0).ended_at, until = stopped + 10;
    toy::RunOptions resume = options_;
    resume.until = until;
    resume.save_every = 0;
    resume.save_last = false;
    resume.asynchronous = false;
    const std::vector<toy::RunEnd> seen = toy::run_threads(resume, planned_.ranks, checkpoint::posix_storage());
    const SegmentsDone whole = run_segments(resume.config, {{planned_.ranks, until}}, config_.deadline_s);
    for (const toy::RunEnd& end : seen) {
      if (!end.problem.empty() || end.began_at != stopped || !whole.problem.empty())
        return {"not resumed: " + end.problem + whole.problem};
    }
    const std::vector<std::string> differences = end_differences(whole.last(), seen);
    if (!differences.empty()) return {"other bits: " + differences.front()};
    measured().add("resumed bit for bit");
    return {};
  }

  static std::string outcome_of(const std::vector<std::string>& problems) {
    return problems.front().substr(0, problems.front().find(':'));
  }

  std::string sentence_of(const std::vector<std::string>& problems) const {
    std::string text = fmt::format("{} ({}): ", planned_.trial.failure, planned_.trial.place);
    for (const std::string& each : problems) text += each + "; ";
    for (int rank = 0; rank < planned_.ranks; ++rank) {
      if (const char* const said = board_.rank(rank).problem.data(); *said != '\0')
        text += fmt::format("rank {}: {}; ", rank, said);
    }
    return text.substr(0, text.size() - 2);
  }

  void judge(const std::vector<std::string>& problems) {
    if (problems.empty()) return cases_.good("saved in the grace, resumed bit for bit");
    cases_.fault(outcome_of(problems), sentence_of(problems), timeline());
  }

  void judge_mistake(const std::vector<std::string>& problems) {
    const std::string expected =
        planned_.mistake == Mistake::stops_alone ? "stopped without agreement" : "torn by a signal";
    const bool found =
        std::ranges::any_of(problems, [&](const std::string& each) { return each.starts_with(expected); });
    if (found) return cases_.good("found: " + expected);
    cases_.fault("not found",
              fmt::format("{} expected; {}", expected, problems.empty() ? "nothing was found" : sentence_of(problems)),
              timeline());
  }

  std::vector<TimelineStep> timeline() const {
    std::vector<TimelineStep> steps{{"suite",
                                     fmt::format("{} to {}", planned_.number == SIGTERM ? "SIGTERM" : "SIGUSR1",
                                                 kTo[static_cast<int>(planned_.to)]),
                                     counted(planned_.times, "time")}};
    for (int rank = 0; rank < planned_.ranks; ++rank) {
      const RankBoard& own = board_.rank(rank);
      steps.push_back({fmt::format("rank {}", rank),
                       fmt::format("takes step {}, got {}", own.reached.load(), counted(own.signals, "signal")),
                       own.exit_code == 0 ? "ended by a signal" : fmt::format("ends with {}", own.exit_code.load())});
    }
    return steps;
  }

  const ResumeConfig& config_;
  const PlannedSignal& planned_;
  toy::RunOptions options_;
  Board& board_;
  Cases& cases_;
  KeyedDraws draws_;
  bool sent_ = false;
};

class Preemptions : public ProcessSuite {
 public:
  using ProcessSuite::ProcessSuite;

  std::string subject() const override {
    return fmt::format("a toy run of 1 to {} that is told to end", counted(config_.ranks, "rank"));
  }

  std::vector<std::string> plan() const override {
    return {fmt::format(
                "{} at random moments: SIGTERM or SIGUSR1, to one rank, to all, to the launcher, once or three times",
                counted(config_.signals, "run")),
            fmt::format(
                "the same at {} chosen moments: before the first step, in a warm-up, a step, an evaluation, a save, an "
                "asynchronous one",
                std::size(kMoments) * 12),
            fmt::format("saved within {:g} s, the exit code kept, resumed for ten steps bit for bit", config_.grace_s)};
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    return {{"runs that were told to end", with_commas(m.count("runs"))},
            {"times that they were told", with_commas(m.count("times"))},
            {"saved in the grace and resumed bit for bit", with_commas(m.count("resumed bit for bit"))},
            {"longest from the first signal to the end",
             fmt::format("{} ms of a grace of {:g} s", with_commas(static_cast<int64_t>(m.greatest("ms"))), config_.grace_s)}};
  }

 protected:
  std::vector<Trial> planned() override {
    planned_.clear();
    for (int64_t at = 0; at < config_.signals; ++at) {
      const uint64_t seed = keyed(static_cast<uint64_t>(config_.seed), 77, at);
      PlannedSignal planned = made(seed, at % 2 == 0 ? SIGTERM : SIGUSR1, static_cast<To>(at % 3), at / 6 % 2 == 0 ? 1 : 3);
      planned.asynchronous = at / 12 % 2 == 1;
      add(std::move(planned), fmt::format("random@{}", at), "at a random moment");
    }
    for (const Moment& moment : kMoments) plan_moment(moment);
    if (config_.mutants) plan_mistakes();
    std::vector<Trial> trials;
    for (const PlannedSignal& each : planned_) trials.push_back(each.trial);
    return trials;
  }

  void run_trial(const std::string& name, const std::string& folder, Board& board, Cases& cases) override {
    const PlannedSignal& planned = plan_named(planned_, name);
    Preempted(config_, planned, options_of(folder + "/checkpoints"), board, cases).go();
  }

 private:
  PlannedSignal made(uint64_t seed, int number, To to, int times) const {
    PlannedSignal planned;
    planned.seed = seed;
    planned.number = number;
    planned.to = to;
    planned.times = times;
    const auto most = static_cast<uint32_t>(std::min<int64_t>(config_.ranks, kMostRanks));
    planned.ranks = 1 + static_cast<int>(KeyedDraws(seed).below(100, most));
    planned.target = static_cast<int>(KeyedDraws(seed).below(101, static_cast<uint32_t>(planned.ranks)));
    return planned;
  }

  void add(PlannedSignal planned, std::string name, std::string place) {
    planned.trial = {std::move(name),
                     fmt::format("{} to {}{}", planned.number == SIGTERM ? "SIGTERM" : "SIGUSR1",
                                 kTo[static_cast<int>(planned.to)], planned.times > 1 ? ", three times" : ""),
                     std::move(place), 0.15};
    planned_.push_back(std::move(planned));
  }

  void plan_moment(const Moment& moment) {
    uint64_t count = 0;
    for (const int number : {SIGTERM, SIGUSR1}) {
      for (const To to : {To::one_rank, To::all_ranks, To::launcher}) {
        for (const int times : {1, 3}) {
          PlannedSignal planned = made(keyed(static_cast<uint64_t>(config_.seed), 78, ++count), number, to, times);
          planned.moment = &moment;
          planned.asynchronous = moment.asynchronous;
          add(std::move(planned), fmt::format("{}@{}", moment.name, count), moment.words);
        }
      }
    }
  }

  void plan_mistakes() {
    for (int at = 0; at < 6; ++at) {
      const uint64_t seed = keyed(static_cast<uint64_t>(config_.seed), 79, at);
      PlannedSignal alone = made(seed, at % 2 == 0 ? SIGTERM : SIGUSR1, To::one_rank, 1);
      alone.mistake = Mistake::stops_alone;
      alone.ranks = std::max(alone.ranks, 2);
      alone.moment = &kMoments[2];
      add(std::move(alone), fmt::format("stops_alone@{}", at), "in a step");
      planned_.back().trial.failure = "mutant: a rank stops without agreement";
      PlannedSignal torn = made(seed, at % 2 == 0 ? SIGTERM : SIGUSR1, at < 3 ? To::one_rank : To::all_ranks, 3);
      torn.mistake = Mistake::default_on_second;
      torn.moment = &kMoments[2];
      add(std::move(torn), fmt::format("torn@{}", at), "in the last save");
      planned_.back().trial.failure = "mutant: a second signal ends the process";
    }
  }

  std::vector<PlannedSignal> planned_;
};

}  // namespace

std::unique_ptr<Suite> make_preemption(const ResumeConfig& config) {
  return std::make_unique<Preemptions>(config);
}

}  // namespace lockstep::resume
