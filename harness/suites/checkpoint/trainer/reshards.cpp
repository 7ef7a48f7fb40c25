// A run goes on with another number of ranks. Under exact arithmetic it has the bits of the one that did not change.

#include <fmt/format.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <map>

#include "harness/base/errors.h"
#include "harness/suites/checkpoint/trainer/experiment.h"
#include "harness/suites/checkpoint/trainer/judge.h"

namespace lockstep::restarts {
namespace {

constexpr std::array kWorlds{1, 2, 3, 4, 5, 8};
constexpr int kBatch = 120;  ///< rows that each of them shares equally
constexpr int64_t kReshardSteps = 4, kReshardEvery = 2;

class Reshards : public Experiment {
 public:
  explicit Reshards(const Subject& subject) : subject_(subject) {}

  std::vector<Trial> trials(Bench& bench) override {
    whole_ = reference(bench, "reshards", config_of(1));
    std::vector<Trial> trials;
    for (const int from : kWorlds) {
      const std::string dir = bench.empty(fmt::format("reshard-{}", from));
      bench.attempt(dir, config_of(from), {}, [](const Going& going) {
        if (going.fewest_steps() > kReshardEvery) going.signal_all(SIGKILL);
      });
      if (kept_in(dir).newest() != kReshardEvery)
        throw ConfigError(fmt::format("{} ranks left no checkpoint of step {}: {}", from, kReshardEvery, result_of(dir, 0).error));
      before_[from] = dir;
      for (const int to : kWorlds) {
        const std::string name = fmt::format("reshard:{}_to_{}", from, to);
        trials.push_back({name, "reshard", fmt::format("from {} ranks", from), 1});
        planned_[name] = {from, to};
      }
    }
    return trials;
  }

  std::vector<CaseResult> run(const Trial& trial, Bench& bench) const override {
    const auto [from, to] = planned_.at(trial.name);
    const std::string dir = bench.copy(before_.at(from), "run");
    if (from != to) {
      for (int rank = 0; rank < from; ++rank) std::filesystem::remove(trace_of(dir, rank));
    }
    const Ended ended = bench.attempt(dir, config_of(to));
    const std::string what = fmt::format("saved by {} ranks, gone on with {}", from, to);
    const int64_t resumed = result_of(dir, 0).checkpoints.resumed_at;
    if (resumed != kReshardEvery) {
      return {fault("resume fails", fmt::format("{}: at step {} expected, found step {} ({}): {}", what, kReshardEvery, resumed,
                                                ended.in_words(), result_of(dir, 0).error))};
    }
    const std::string difference = training_difference(whole_, dir);
    if (!difference.empty()) return {fault("other bits", what + ": " + difference)};
    return {good("bit-equal")};
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements&) const override {
    return {{"pairs of world sizes", fmt::format("{} of {{{}}}²", planned_.size(), fmt::join(kWorlds, ", "))}};
  }

 private:
  RunConfig config_of(int ranks) const {
    RunConfig base = subject_.config;
    base.arithmetic = Arithmetic::exact;
    base.layout = {1, kBatch};
    return shaped(base, {ranks, kReshardSteps, kReshardEvery, 3, false, true});
  }

  const Subject& subject_;
  std::string whole_;
  std::map<int, std::string> before_;
  std::map<std::string, std::pair<int, int>> planned_;
};

}  // namespace

std::unique_ptr<Experiment> make_reshards(const Subject& subject) { return std::make_unique<Reshards>(subject); }

}  // namespace lockstep::restarts
