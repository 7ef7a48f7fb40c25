#include "harness/verdict/plan/interim_analyses.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/plan/question.h"

namespace lockstep {

std::vector<int> analysis_sizes(const SeedsAuto& seeds) {
  std::vector<int> sizes;
  for (int n = seeds.first; n < seeds.most; n += seeds.step) sizes.push_back(n);
  sizes.push_back(seeds.most);
  return sizes;
}

std::vector<int64_t> seeds_of_analysis(int count) {
  std::vector<int64_t> seeds(static_cast<std::size_t>(count));
  std::iota(seeds.begin(), seeds.end(), int64_t{0});
  return seeds;
}

void set_analysis(Matrix& matrix, const std::vector<int>& counts) {
  int most = 0;
  for (std::size_t i = 0; i < matrix.cells.size(); ++i) {
    matrix.cells[i].seeds = seeds_of_analysis(counts.at(i));
    most = std::max(most, counts[i]);
  }
  matrix.seeds = seeds_of_analysis(most);
}

std::string interim_analyses_in_words(const SeedsAuto& seeds) {
  return fmt::format("{} to {} seeds, {} at a time", seeds.first, seeds.most, seeds.step);
}

void check_seeds_auto(const MatrixSource& source, Problems& problems) {
  const SeedsAuto& seeds = source.matrix.seeds_auto;
  const QuestionPlan& asks = asked_by(source.matrix);
  if (!seeds.on) return;
  if (!asks.by_outcome) {
    problems.add(source.place_of("seeds"),
                 fmt::format("seeds: auto adds seeds until outcomes are decided; the question is {}", asks.name));
    return;
  }
  const bool has_first = source.places.contains("seeds_auto.first");
  if (seeds.first > seeds.most) {
    problems.add(
        source.place_of(has_first ? "seeds_auto.first" : "seeds_auto.most"),
        fmt::format("the first interim analysis has {} seeds, more than the last with {}", seeds.first, seeds.most));
  } else if (analysis_sizes(seeds).size() > static_cast<std::size_t>(kMostAnalyses)) {
    problems.add(
        source.place_of(source.places.contains("seeds_auto.step") ? "seeds_auto.step" : "seeds_auto.most"),
        fmt::format("{} make more than {} interim analyses", interim_analyses_in_words(seeds), kMostAnalyses));
  }
}

}  // namespace lockstep
