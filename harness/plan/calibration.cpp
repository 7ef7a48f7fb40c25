#include "harness/plan/calibration.h"

#include <fmt/format.h>

#include <array>

#include "harness/plan/looks.h"

namespace lockstep {

void finish_calibration(MatrixSource& source, Problems& problems) {
  Matrix& matrix = source.matrix;
  constexpr std::array<std::string_view, 7> kNotTaken{"axes",  "include",        "exclude", "reference",
                                                      "noise", "power_controls", "expect"};
  for (const std::string_view key : kNotTaken) {
    if (!source.places.contains(key)) continue;
    problems.add(
        source.place_of(key),
        fmt::format("the question of calibration draws from the runs of one cell: leave {} out", key));
    source.sound = false;
  }
  const int64_t drawn = 2 * int64_t{matrix.calibration.pairs};
  if (static_cast<int64_t>(matrix.seeds.size()) < drawn && !matrix.seeds_auto.on) {
    problems.add(source.place_of("seeds"),
                 fmt::format("a comparison of {} pairs draws {} runs, and there are {} seeds",
                             matrix.calibration.pairs, drawn, matrix.seeds.size()));
  }
  source.same_as_cell = true;
  matrix.forced_steps.clear();
  matrix.certify_steps = 0;
}

void check_seeds_auto(const MatrixSource& source, Problems& problems) {
  const Matrix& matrix = source.matrix;
  const SeedsAuto& seeds = matrix.seeds_auto;
  const bool calibrates = matrix.question == Question::calibration;
  if (seeds.on && matrix.question != Question::outcome) {
    problems.add(source.place_of("seeds"),
                 fmt::format("seeds: auto adds seeds until outcomes are decided; the question is {}",
                             name_of(matrix.question)));
    return;
  }
  if (!seeds.on && !calibrates) return;
  const bool has_first = source.places.contains("seeds_auto.first");
  if (seeds.first > seeds.most) {
    problems.add(
        source.place_of(has_first ? "seeds_auto.first" : "seeds_auto.most"),
        fmt::format("the first look has {} seeds, more than the last with {}", seeds.first, seeds.most));
  } else if (look_sizes(seeds).size() > static_cast<std::size_t>(kMostLooks)) {
    problems.add(
        source.place_of(source.places.contains("seeds_auto.step") ? "seeds_auto.step" : "seeds_auto.most"),
        fmt::format("{} give more than {} looks", looks_in_words(seeds), kMostLooks));
  }
}

}  // namespace lockstep
