// The control plane: ranks that agree are left alone; the first one that does not is named, with value and
// step, before it hangs a collective.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/base/counted.h"
#include "harness/suites/sampling/control_run.h"
#include "harness/suites/sampling/trials.h"

namespace lockstep::sampling {
namespace {

constexpr int64_t kMistakeSteps[] = {0, 1, 3, 4};
/// Of one's own job, if it has more: they run in one process, in which what each tells all others grows with the
/// square.
constexpr int kMostGuarded = 128;

/// What comes of it if nobody looks.
std::string unguarded_words(ControlCase each) {
  each.guarded = false;
  const ControlEnd end = run_control(each);
  if (end.stalled) return "ranks wait for one that does not come";
  if (end.problem.find("ended") != std::string::npos) return "the next collective fails";
  if (!end.problem.empty()) return "ranks meet in different collectives";
  return end.replicas_equal ? "nothing shows" : "the replicas part, and nothing shows it";
}

/// Successes are merged every 3 steps; who does it every 4 steps is seen where one of the two is due.
int64_t first_merge_at_odds(int64_t step) {
  while ((step % 3 == 0) == (step % 4 == 0)) ++step;
  return step;
}

class ControlTrials final : public Suite {
 public:
  explicit ControlTrials(const SamplingConfig& config) : config_(config) {}

  std::vector<std::string> plan() const override {
    return {
        fmt::format("control: 1 to {} ranks that agree, with and without the guard; {} mistakes, each of "
                    "every rank in turn at {} "
                    "steps{}",
                    config_.most_ranks, control_rows().size(), std::size(kMistakeSteps),
                    config_.has_many_ranks() ? fmt::format("; {} of one's own job's {} ranks as well", many_ranks(),
                                                           with_commas(config_.ranks))
                                             : "")};
  }

  std::vector<Trial> trials(const SuiteRun&) override {
    std::vector<Trial> all;
    for (int ranks = 1; ranks <= config_.most_ranks; ++ranks) all.push_back(clean(ranks, 20));
    if (config_.has_many_ranks()) all.push_back(clean(many_ranks(), 1));
    if (!config_.planted) return all;
    for (const ControlRow& row : control_rows())
      all.push_back(planted_trial(row.name, row.words, "control plane", 0.5, {std::string(row.code)},
                                  [this, &row](MutationCheck& check) { plant(row, check); }));
    return all;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    return {{"steps whose control values were compared, all alike", with_commas(m.count("steps"))},
            {"mistakes of the control plane named at their step, value and rank", with_commas(m.count("named"))}};
  }

  std::vector<std::string> notes(const Measurements&) const override {
    if (config_.ranks <= kMostGuarded) return {};
    return {fmt::format("Control values: {} of one's own job's {} ranks were compared. They run in one process, where "
                        "the texts that each gives all others grow with the square of their number.",
                        kMostGuarded, with_commas(config_.ranks))};
  }

 private:
  int many_ranks() const { return static_cast<int>(std::min<int64_t>(config_.ranks, kMostGuarded)); }

  Trial clean(int ranks, int64_t draws) {
    Trial planned;
    planned = {fmt::format("control:{}", ranks), "control plane", "ranks that agree", 0.1};
    planned.run = [this, ranks, draws](Slot&) {
      Cases cases;
      for (int64_t draw = 0; draw < draws; ++draw) {
        ControlCase each{.ranks = ranks, .steps = 25, .seed = static_cast<uint64_t>(config_.seed + draw)};
        const ControlEnd guarded = run_control(each);
        each.guarded = false;
        const ControlEnd alone = run_control(each);
        if (!guarded.verdict)
          cases.fault("false alarm", guarded.verdict.sentence);
        else if (!guarded.problem.empty() || guarded.stalled || !guarded.replicas_equal)
          cases.fault("not finished", "ranks that agree did not come to the end: " + guarded.problem);
        else if (guarded.steps != alone.steps || guarded.parameter != alone.parameter)
          cases.fault("changed", "the run has other parameters with the guard than without it");
        else
          cases.good();
        measured().add("steps", guarded.steps);
      }
      return cases.take();
    };
    return planned;
  }

  /// Named as it must be: code, step and rank, the same on all ranks, and nobody waited.
  std::string problem_of(const ControlRow& row, const ControlCase& each, const ControlEnd& end) const {
    int64_t step =
        row.mistake == ControlMistake::merge_interval ? first_merge_at_odds(each.at) : each.at + row.after;
    if (row.mistake == ControlMistake::step_off && each.ranks == 2 && each.victim == 0) ++step;
    // Of two ranks, or where all make the mistake, what rank 0 has counts.
    const int rank = row.mistake == ControlMistake::leaves ? -1
                     : row.everywhere || each.ranks == 2   ? 1
                                                           : each.victim;
    if (end.verdict.code != row.code) return "named otherwise";
    if (end.verdict.step != step)
      return fmt::format("named at step {}, expected at {}", end.verdict.step, step);
    if (end.verdict.rank != rank)
      return fmt::format("named on rank {}, expected on {}", end.verdict.rank, rank);
    if (!end.told_alike) return "ranks were told different things";
    if (end.stalled) return "a rank waited for the whole deadline";
    return "";
  }

  void plant(const ControlRow& row, MutationCheck& check) {
    std::map<std::string, int64_t> unguarded;
    const auto plant_one = [&](int ranks, int victim, int64_t at) {
      const ControlCase each{.ranks = ranks,
                             .victim = victim,
                             .mistake = row.mistake,
                             .at = at,
                             .seed = static_cast<uint64_t>(config_.seed)};
      const ControlEnd end = run_control(each);
      const std::string problem = problem_of(row, each, end);
      if (!problem.empty())
        return check.saw(end.verdict.code == row.code ? "at another place" : end.verdict.code,
                        fmt::format("{}, victim {}, step {}: {}: {}", counted(ranks, "rank"), victim, at, problem,
                                    end.verdict.sentence));
      measured().add("named");
      ++unguarded[unguarded_words(each)];
      check.saw(end.verdict.code, end.verdict.sentence);
    };
    for (const int ranks : {3, 5, 8, 2}) {
      if (ranks > config_.most_ranks) continue;
      for (int victim = 0; victim < ranks; ++victim) {
        for (const int64_t at : kMistakeSteps) plant_one(ranks, victim, at);
      }
    }
    if (config_.has_many_ranks()) plant_one(many_ranks(), many_ranks() - 1, kMistakeSteps[2]);
    std::string remark;
    for (const auto& [words, cases] : unguarded)
      remark += fmt::format("{} {} in {}", remark.empty() ? "" : ",", words, counted(cases, "case"));
    check.remark(". Without the guard:" + remark);
  }

  const SamplingConfig config_;
};

}  // namespace

std::unique_ptr<Suite> make_control_trials(const SamplingConfig& config) {
  return std::make_unique<ControlTrials>(config);
}

}  // namespace lockstep::sampling
