#include "harness/plan/looks.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace lockstep {

std::vector<int> look_sizes(const SeedsAuto& seeds) {
  std::vector<int> sizes;
  for (int n = seeds.first; n < seeds.most; n += seeds.step) sizes.push_back(n);
  sizes.push_back(seeds.most);
  return sizes;
}

std::vector<int64_t> seeds_of_look(int count) {
  std::vector<int64_t> seeds(static_cast<std::size_t>(count));
  std::iota(seeds.begin(), seeds.end(), int64_t{0});
  return seeds;
}

void set_look(Matrix& matrix, const std::vector<int>& counts) {
  int most = 0;
  for (std::size_t i = 0; i < matrix.cells.size(); ++i) {
    matrix.cells[i].seeds = seeds_of_look(counts.at(i));
    most = std::max(most, counts[i]);
  }
  matrix.seeds = seeds_of_look(most);
}

std::string looks_in_words(const SeedsAuto& seeds) {
  return fmt::format("{} to {} seeds, {} at a time", seeds.first, seeds.most, seeds.step);
}

}  // namespace lockstep
