// A run of 4 ranks is killed at random moments and started again, many times over.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <map>

#include "harness/base/hashing.h"
#include "harness/suites/checkpoint/trainer/experiment.h"
#include "harness/suites/checkpoint/trainer/judge.h"

namespace lockstep::restarts {
namespace {

constexpr int kCycleRanks = 4, kKeep = 3;
constexpr int64_t kCycleSteps = 90, kCycleEvery = 3, kCyclesOfChain = 25;
/// Moments of a kill: so long after an attempt's processes began, and so many steps after the first one trained.
constexpr double kBegins_s = 0.25;
constexpr int64_t kMostSteps = 6;

/// What the folder should hold, and what was done to it.
struct Chain {
  std::string dir;
  int64_t newest = 0;  ///< that stood before
  int64_t killed = 0, finished = 0;
  std::vector<TimelineStep> timeline;
};

class Cycles : public Experiment {
 public:
  explicit Cycles(const Subject& subject) : subject_(subject) {}

  std::vector<Trial> trials(Bench& bench) override {
    config_ = shaped(subject_.config, {kCycleRanks, kCycleSteps, kCycleEvery, kKeep, false, false});
    whole_ = reference(bench, "cycles", config_);
    std::vector<Trial> trials;
    for (int64_t first = 0; first < subject_.cycles; first += kCyclesOfChain) {
      const std::string name = fmt::format("cycle:from_{}", first);
      trials.push_back({name, "random kill and restart", "4 ranks", 15});
      planned_[name] = {first, std::min(first + kCyclesOfChain, subject_.cycles)};
    }
    return trials;
  }

  std::vector<CaseResult> run(const Trial& trial, Bench& bench) const override {
    const auto [first, end] = planned_.at(trial.name);
    Chain chain;
    chain.dir = bench.empty("run");
    for (int64_t cycle = first; cycle < end; ++cycle) {
      if (std::string problem = kill_once(cycle, chain, bench); !problem.empty()) return {wrong(chain, problem)};
    }
    const Ended ended = bench.attempt(chain.dir, config_);
    if (ended.hung) return {wrong(chain, "hang: the run does not end after the last kill")};
    const std::string difference = first_difference(whole_, chain.dir, kCycleRanks);
    if (!difference.empty()) return {wrong(chain, "end differs: " + difference)};
    if (const std::string problem = best_model_problem(chain.dir, config_); !problem.empty())
      return {wrong(chain, "not the best: " + problem)};
    CaseResult cycles = good("gone on, at most one interval lost");
    cycles.cases = end - first;
    return {std::move(cycles), good("end equal")};
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements&) const override {
    return {{"kill-and-restart cycles of a run of 4 ranks",
             fmt::format("{}, each of them a random rank or all, a save every {} steps, {} kept", subject_.cycles, kCycleEvery,
                         kKeep)}};
  }

 private:
  static CaseResult wrong(const Chain& chain, const std::string& problem) {
    CaseResult result = fault(problem.substr(0, problem.find(':')),
                              fmt::format("after {} kills: {}", chain.killed, problem));
    const auto most = static_cast<std::ptrdiff_t>(std::min<std::size_t>(chain.timeline.size(), 6));
    result.timeline.assign(chain.timeline.end() - most, chain.timeline.end());
    return result;
  }

  /// One attempt that is killed at a random moment; begun anew where it came to its end. Returns what is wrong with what it
  /// left: "lost work: …".
  std::string kill_once(int64_t cycle, Chain& chain, Bench& bench) const {
    const auto draw = [&](uint64_t what) {
      return keyed(static_cast<uint64_t>(subject_.seed), static_cast<uint64_t>(cycle), what);
    };
    // One in four is killed while it begins or loads, the others some steps later.
    const bool early = draw(0) % 4 == 0;
    const double after_s = static_cast<double>(draw(1) % 1000) / 1000 * kBegins_s;
    const int64_t steps = static_cast<int64_t>(draw(2) % kMostSteps), pause_us = static_cast<int64_t>(draw(3) % 4000);
    const int victim = static_cast<int>(draw(4) % (kCycleRanks + 1));  // the last number: all of them
    int64_t most = chain.newest;
    double due_s = -1;
    bool killed = false;
    const Ended ended = bench.attempt(chain.dir, config_, {}, [&](const Going& going) {
      if (killed) return;
      most = std::max(most, going.most_steps());
      if (early) {
        if (going.since_started_s < after_s) return;
      } else {
        if (going.fewest_steps() <= chain.newest + steps) return;
        if (due_s < 0) due_s = going.since_started_s + static_cast<double>(pause_us) * 1e-6;
        if (going.since_started_s < due_s) return;
      }
      killed = true;
      if (victim == kCycleRanks) going.signal_all(SIGKILL);
      else going.kill(victim);
      most = std::max(most, going.most_steps());
    });
    if (ended.hung) return "hang: " + ended.in_words();
    const Kept kept = kept_in(chain.dir);
    chain.timeline.push_back({victim == kCycleRanks ? "all ranks" : fmt::format("rank {}", victim),
                              fmt::format("after step {}, the newest checkpoint of step {}", most, kept.newest()),
                              "killed"});
    if (ended.finished()) {
      chain.dir = bench.empty("run");
      chain.newest = 0;
      ++chain.finished;
      return "";
    }
    ++chain.killed;
    if (kept.damaged > 0) return "torn: a checkpoint counts that is damaged";
    if (chain.newest > 0 && kept.whole.empty()) return "none left: no checkpoint is whole where there was one";
    if (kept.newest() < chain.newest)
      return fmt::format("lost work: step {} stood there, and {} does", chain.newest, kept.newest());
    if (most - kept.newest() > kCycleEvery)
      return fmt::format("lost work: {} steps were done, the newest checkpoint is of step {}", most, kept.newest());
    if (kept.whole.size() > kKeep + 1)
      return fmt::format("too many kept: {}, at most {} expected", kept.whole.size(), kKeep + 1);
    chain.newest = kept.newest();
    return "";
  }

  const Subject& subject_;
  RunConfig config_;
  std::string whole_;
  std::map<std::string, std::pair<int64_t, int64_t>> planned_;
};

}  // namespace

std::unique_ptr<Experiment> make_cycles(const Subject& subject) { return std::make_unique<Cycles>(subject); }

}  // namespace lockstep::restarts
