// Seeds: which streams of a million share one, under the formulas that people use and the keyed one.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <array>

#include "harness/base/counted.h"
#include "harness/lib/data/sharding/seeds.h"
#include "harness/suites/sampling/trials.h"

namespace lockstep::sampling {
namespace {

using sharding::Collisions;
using sharding::SeedFormula;
using sharding::StreamRanges;

std::string collision_words(const Collisions& found) {
  return fmt::format("{} streams have {} seeds; {} and {} both have seed {}", with_commas(found.streams),
                     with_commas(found.distinct), sharding::in_words(found.first),
                     sharding::in_words(found.second), found.seed);
}

class SeedTrials final : public Suite {
 public:
  explicit SeedTrials(const SamplingConfig& config) : config_(config) {
    ranges_.ranks = std::max(ranges_.ranks, config.ranks);
  }

  std::vector<std::string> plan() const override {
    return {fmt::format("seeds: {} formulas over {} streams of {} runs, {} ranks, {} workers and {} epochs",
                        sharding::seed_formulas().size(), with_commas(ranges_.count()), ranges_.runs,
                        ranges_.ranks, ranges_.workers, ranges_.epochs)};
  }

  std::vector<Trial> trials(const SuiteRun&) override {
    std::vector<Trial> all;
    for (const SeedFormula& formula : sharding::seed_formulas()) {
      if (formula.collides && !config_.planted) continue;
      all.push_back(scan(formula));
    }
    all.push_back(cross("keyed", "keyed"));
    if (config_.planted) all.push_back(cross("plus_rank", "plus_epoch"));
    return all;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    std::vector<std::pair<std::string, std::string>> facts;
    for (const SeedFormula& formula : sharding::seed_formulas()) {
      const auto at = m.entries("seeds").find(std::string(formula.name));
      if (at == m.entries("seeds").end()) continue;
      const auto [streams, distinct, distinct_low] = at->second.get<std::array<int64_t, 3>>();
      facts.emplace_back(fmt::format("seeds: {}", formula.words),
                         fmt::format("{} for {} streams; {} as PyTorch's CPU generator takes them",
                                     with_commas(distinct), with_commas(streams),
                                     with_commas(distinct_low)));
    }
    return facts;
  }

  std::vector<std::string> notes(const Measurements&) const override {
    return {
        "Seeds: PyTorch's CPU generator takes the lower 32 bits of a seed, so that formulas without a "
        "collision in 64 bits may "
        "still give two streams the same numbers there. What a loader draws as its base in each epoch is "
        "modelled as a keyed "
        "draw by run and epoch, the same on all ranks."};
  }

 private:
  Trial scan(const SeedFormula& formula) {
    Trial planned;
    planned = {fmt::format("seeds:{}", formula.name),
                     formula.collides ? fmt::format("planted: seeds are {}", formula.words) : "seeds",
                     std::string(formula.words), 0.5};
    planned.run = [this, &formula](Slot&) {
      const Collisions found = sharding::scan_seeds(formula, ranges_);
      measured().keep("seeds", std::string(formula.name), {found.streams, found.distinct, found.distinct_low});
      const bool collides = found.distinct < found.streams;
      CaseResult result;
      if (!collides && !formula.collides) result = {kAsItMust, CaseVerdict::good, found.streams, ""};
      if (collides && formula.collides)
        result = {kFoundAndNamed, CaseVerdict::planted, 1,
                  fmt::format("{} ({}): {}", formula.words, formula.used_by, collision_words(found))};
      if (collides != formula.collides)
        result = {collides ? "collision" : "planted, not found", CaseVerdict::fault, 1,
                  collides ? collision_words(found)
                           : fmt::format("{}: no collision among {} streams", formula.words,
                                         with_commas(found.streams))};
      return std::vector<CaseResult>{std::move(result)};
    };
    return planned;
  }

  /// Ranks' streams against epochs' permutations.
  Trial cross(std::string_view of_ranks, std::string_view of_epochs) {
    Trial planned;
    const bool keyed = of_ranks == "keyed";
    planned = {fmt::format("seeds:{}-against-{}", of_ranks, of_epochs),
                     keyed ? "seeds" : "planted: seed + rank beside seed + epoch",
                     "streams of ranks against permutations of epochs", 0.1};
    planned.run = [this, of_ranks, of_epochs, keyed](Slot&) {
      const sharding::CrossCollisions found = sharding::cross_seeds(
          *sharding::find_seed_formula(of_ranks), *sharding::find_seed_formula(of_epochs), ranges_);
      const std::string words = fmt::format(
          "{} of {} streams of ranks have the seed of a permutation of some epoch; the first: {} draws from "
          "seed {}, and so does the "
          "permutation of run {}, epoch {}",
          with_commas(found.shared), with_commas(found.streams), sharding::in_words(found.stream), found.seed,
          found.permutation.run, found.permutation.epoch);
      CaseResult result{kAsItMust, CaseVerdict::good, found.streams, ""};
      if (!keyed && found.shared > 0) result = {kFoundAndNamed, CaseVerdict::planted, 1, words};
      if (!keyed && found.shared == 0)
        result = {"planted, not found", CaseVerdict::fault, 1, "no stream has a permutation's seed"};
      if (keyed && found.shared > 0) result = {"collision", CaseVerdict::fault, 1, words};
      return std::vector<CaseResult>{std::move(result)};
    };
    return planned;
  }

  const SamplingConfig config_;
  StreamRanges ranges_;  ///< of as many ranks as one's own job has, if those are more
};

}  // namespace

std::unique_ptr<Suite> make_seed_trials(const SamplingConfig& config) {
  return std::make_unique<SeedTrials>(config);
}

}  // namespace lockstep::sampling
