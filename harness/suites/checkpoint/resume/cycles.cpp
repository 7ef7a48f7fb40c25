// The toy run as processes, killed and restarted again and again.

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>

#include "harness/base/clock.h"
#include "harness/base/counted.h"
#include "harness/base/hashing.h"
#include "harness/base/keyed_draws.h"
#include "harness/lib/checkpoint/survey.h"
#include "harness/suites/checkpoint/resume/process_suite.h"
#include "harness/suites/checkpoint/resume/segments.h"

namespace lockstep::resume {
namespace {

enum class Kill { rank_at_operation, rank_at_moment, all_at_moment };

struct PlannedChain {
  Trial trial;
  Kill kill = Kill::rank_at_operation;
  int ranks = 1;
  bool asynchronous = false;
  int64_t kills = 0;
  uint64_t seed = 0;
};

/// One run, from its begin over its kills to its end, again until all kills are done.
class Chain {
 public:
  Chain(const ResumeConfig& config, const PlannedChain& planned, toy::RunOptions options, Board& board, Cases& cases)
      : config_(config),
        planned_(planned),
        options_(std::move(options)),
        board_(board),
        cases_(cases),
        draws_(planned.seed) {
    options_.until = config.steps;
    options_.asynchronous = planned.asynchronous;
    folder_ = options_.root;
  }

  void go(const std::vector<toy::RunEnd>& expected) {
    for (int64_t run = 0; kills_ < planned_.kills && sound_; ++run) {
      options_.root = fmt::format("{}/run-{}", folder_, run);
      committed_ = 0;
      while (sound_ && !cycle(expected)) {
      }
      measured().add("runs");
      std::error_code left_behind;
      std::filesystem::remove_all(options_.root, left_behind);
    }
  }

 private:
  /// Starts the run once. True: it came to its end.
  bool cycle(const std::vector<toy::RunEnd>& expected) {
    board_.clear();
    ProcessRun run;
    run.options = options_;
    run.ranks = planned_.ranks;
    run.sync = config_.sync;
    const bool kill = kills_ < planned_.kills;
    const int victim = static_cast<int>(draws_.below(count_++, static_cast<uint32_t>(planned_.ranks)));
    if (kill && planned_.kill == Kill::rank_at_operation) {
      run.killed_rank = victim;
      run.killed_at = draws_.below(count_++, static_cast<uint32_t>(std::max(1.0, operations_)));
    }
    const double started_s = monotonic_s();
    const std::vector<pid_t> processes = start_ranks(run, board_);
    if (kill && planned_.kill != Kill::rank_at_operation) {
      wait_ms(unit_interval(draws_.bits(count_++)) * window_ms_);
      for (int rank = 0; rank < planned_.ranks; ++rank) {
        if (rank == victim || planned_.kill == Kill::all_at_moment)
          ::kill(processes[static_cast<std::size_t>(rank)], SIGKILL);
      }
    }
    const Ended ended = wait_for(processes, config_.deadline_s + 10);
    measured().add("starts");
    const bool killed = std::ranges::any_of(
        ended.statuses, [](int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; });
    const bool finished =
        std::ranges::all_of(ended.statuses, [](int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; });
    where_ = fmt::format("{}, {}, start {}: ", planned_.trial.name, options_.root.substr(folder_.size() + 1),
                         measured().count("starts"));
    if (ended.hung) return fault("hang", "a rank had not ended when the deadline was over");
    if (killed) {
      ++kills_;
      measured().add("kills");
      check(victim);
      return false;
    }
    if (!finished) return fault("failed", said());
    // The next kill shall come within the run.
    window_ms_ = 800 * (monotonic_s() - started_s);
    operations_ = 0.8 * static_cast<double>(board_.rank(victim).operations);
    check(-1);
    check_end(expected);
    return true;
  }

  std::string said() const {
    std::string text;
    for (int rank = 0; rank < planned_.ranks; ++rank) {
      const char* const own = board_.rank(rank).problem.data();
      if (*own != '\0') text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank, own);
    }
    return text;
  }

  bool fault(const std::string& outcome, const std::string& sentence) {
    std::vector<TimelineStep> timeline;
    for (int rank = 0; rank < planned_.ranks; ++rank) {
      const RankBoard& own = board_.rank(rank);
      timeline.push_back({fmt::format("rank {}", rank), fmt::format("had taken step {}", own.reached.load()),
                          own.problem.front() == '\0' ? "" : std::string(own.problem.data())});
    }
    cases_.fault(outcome, where_ + sentence, std::move(timeline));
    sound_ = false;
    return true;
  }

  /// What stands on the disk between two starts. `victim`: -1 if nothing was killed.
  void check(int victim) {
    committed_ = std::max(committed_, board_.committed(planned_.ranks));
    int64_t whole = 0, newest = 0;
    const checkpoint::Survey found = checkpoint::survey(checkpoint::posix_storage(), options_.root, true);
    for (const checkpoint::Entry& entry : found.entries) {
      if (entry.standing == checkpoint::Standing::damaged)
        return static_cast<void>(fault("damaged", fmt::format("{}: {}", entry.name, entry.problem)));
      if (entry.standing != checkpoint::Standing::whole) continue;
      ++whole;
      newest = std::max(newest, entry.commit.step);
    }
    const int64_t reached = board_.reached(planned_.ranks), lost = reached - newest;
    const int64_t most = options_.save_every * (planned_.asynchronous ? 2 : 1);
    measured().at_least("kept", static_cast<double>(whole));
    measured().at_least(planned_.asynchronous ? "lost, asynchronous" : "lost", static_cast<double>(lost));
    for (int rank = 0; rank < planned_.ranks; ++rank) {
      if (board_.rank(rank).refused > 0) return static_cast<void>(fault("a checkpoint was refused", said()));
    }
    if (committed_ > 0 && whole == 0)
      return static_cast<void>(fault("none left", "no checkpoint is whole, and one was"));
    if (whole > options_.keep_last + 1)
      return static_cast<void>(
          fault("too many kept", fmt::format("at most {} expected, found {}", options_.keep_last + 1, whole)));
    if (newest < committed_)
      return static_cast<void>(
          fault("a save was lost",
                fmt::format("step {} was told as saved, the newest whole one is of {}", committed_, newest)));
    if (lost > most)
      return static_cast<void>(
          fault("progress was lost", fmt::format("step {} was taken, the newest whole one is of {}; at most {} "
                                                 "may be lost",
                                                 reached, newest, counted(most, "step"))));
    if (victim >= 0) cases_.good("killed, progress kept");
  }

  /// The finished run's state against that of a run that nobody disturbed.
  void check_end(const std::vector<toy::RunEnd>& expected) {
    if (!sound_) return;
    toy::RunOptions load = options_;
    load.asynchronous = false;
    load.save_last = false;
    const std::vector<toy::RunEnd> seen = toy::run_threads(load, planned_.ranks, checkpoint::posix_storage());
    for (const toy::RunEnd& end : seen) {
      if (!end.problem.empty() || end.began_at != config_.steps)
        return static_cast<void>(
            fault("the end is not saved", end.problem.empty()
                                              ? fmt::format("step {} expected, {} found", config_.steps, end.began_at)
                                              : end.problem));
    }
    const std::vector<std::string> differences = end_differences(expected, seen);
    if (!differences.empty()) return static_cast<void>(fault("other bits", differences.front()));
    cases_.good("at the end the bits of the undisturbed run");
  }

  const ResumeConfig& config_;
  const PlannedChain& planned_;
  toy::RunOptions options_;
  Board& board_;
  Cases& cases_;
  KeyedDraws draws_;
  std::string folder_, where_;
  uint64_t count_ = 0;
  int64_t kills_ = 0, committed_ = 0;
  double window_ms_ = 30, operations_ = 120;
  bool sound_ = true;
};

class Cycles : public ProcessSuite {
 public:
  using ProcessSuite::ProcessSuite;

  std::string subject() const override {
    return fmt::format("a toy run of 1 to {}, killed and restarted", counted(config_.ranks, "rank"));
  }

  std::vector<std::string> plan() const override {
    return {
        fmt::format("{} of {} steps' runs, {} of each, saved every {} steps, {} kept", counted(config_.cycles, "kill"),
                    config_.steps, config_.kills_of_a_run, config_.save_every, config_.keep_last),
        "SIGKILL of a rank before an operation, of a rank at a random moment, of all at a random moment"};
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    return {{"kills", with_commas(m.count("kills"))},
            {"runs to their end", with_commas(m.count("runs"))},
            {"starts", with_commas(m.count("starts"))},
            {"most steps lost by a kill",
             fmt::format("{} of {} allowed; asynchronous: {} of {}", m.greatest("lost"), config_.save_every,
                         m.greatest("lost, asynchronous"), 2 * config_.save_every)},
            {"most checkpoints kept", fmt::format("{} of {} allowed", m.greatest("kept"), config_.keep_last + 1)}};
  }

  std::vector<std::string> notes(const Measurements&) const override {
    if (config_.sync) return {};
    return {
        "fsync does nothing here (resume.sync: false): a killed process leaves what it wrote in the page cache, so "
        "that no kill "
        "can show a missing one."};
  }

 protected:
  std::vector<Trial> planned() override {
    planned_.clear();
    std::vector<Trial> trials;
    const int64_t chains = (config_.cycles + config_.kills_of_a_run - 1) / config_.kills_of_a_run;
    const int most = static_cast<int>(std::min<int64_t>(config_.ranks, kMostRanks));
    for (int64_t chain = 0; chain < chains; ++chain) {
      PlannedChain planned;
      planned.kill = static_cast<Kill>(chain % 3);
      planned.ranks = most - static_cast<int>(chain / 3 % most);
      planned.asynchronous = chain / 3 / most % 2 == 1;
      planned.kills = std::min(config_.kills_of_a_run, config_.cycles - chain * config_.kills_of_a_run);
      planned.seed = keyed(static_cast<uint64_t>(config_.seed), chain);
      constexpr const char* kWords[] = {"SIGKILL of a rank before an operation", "SIGKILL of a rank at a random moment",
                                        "SIGKILL of all ranks at a random moment"};
      planned.trial = {fmt::format("chain@{}", chain), kWords[chain % 3],
                       fmt::format("{}, {}", counted(planned.ranks, "rank"),
                                   planned.asynchronous ? "saved asynchronously" : "saved at once"),
                       0.05 * static_cast<double>(planned.kills)};
      trials.push_back(planned.trial);
      planned_.push_back(std::move(planned));
    }
    return trials;
  }

  void run_trial(const std::string& name, const std::string& folder, Board& board, Cases& cases) override {
    const PlannedChain& planned = plan_named(planned_, name);
    toy::RunOptions options = options_of(folder);
    std::vector<toy::RunEnd>& expected = undisturbed_[planned.ranks];
    if (expected.empty()) {
      const SegmentsDone whole = run_segments(options.config, {{planned.ranks, config_.steps}}, config_.deadline_s);
      if (!whole.problem.empty()) {
        cases.undecided("the undisturbed run failed", whole.problem);
        return;
      }
      expected = whole.last();
    }
    Chain(config_, planned, options, board, cases).go(expected);
  }

 private:
  std::vector<PlannedChain> planned_;
  std::map<int, std::vector<toy::RunEnd>> undisturbed_;  ///< in a fork server's process, by ranks
};

}  // namespace

std::unique_ptr<Suite> make_cycles(const ResumeConfig& config) { return std::make_unique<Cycles>(config); }

}  // namespace lockstep::resume
