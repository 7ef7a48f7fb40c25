// What `question: calibration` asks of a config: a pool of runs that differ by their seed alone, and how much is
// drawn.

#include <fmt/format.h>

#include <array>

#include "harness/base/counted.h"
#include "harness/verdict/config/ranges.h"
#include "harness/verdict/plan/matrix_source.h"
#include "harness/verdict/plan/question.h"
#include "harness/verdict/questions/calibration/calibration_config.h"

namespace lockstep::questions::calibration {
namespace {

#define CALIBRATION(member, ...)                                          \
  {                                                                       \
    {"calibration." #member, __VA_ARGS__}, [](Matrix& m) -> FieldRef {              \
      return &section_of<CalibrationConfig>(m).member;                           \
    }                                                                        \
  }
const std::array kFields{
    MatrixField CALIBRATION(draws, Range{100, 1e8}, "draws", "synthetic comparisons of each kind"),
    MatrixField CALIBRATION(comparisons, Range{20, 1e6}, "comparisons", "comparisons drawn from the pool of runs"),
    MatrixField CALIBRATION(pairs, Range{2, 1000}, "pairs", "pairs of each of these comparisons"),
    MatrixField CALIBRATION(draw_seed, ranges::kSeed, "", "seed of everything that is drawn"),
};
#undef CALIBRATION

/// Its one cell is a pool of runs, compared with nothing. Reports sections that it has no use for, and a pool that
/// is too small to be drawn from.
void finish(MatrixSource& source, Problems& problems) {
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
  const int pairs = section_of<CalibrationConfig>(matrix).pairs;
  const int64_t drawn = 2 * int64_t{pairs};
  if (static_cast<int64_t>(matrix.seeds.size()) < drawn && !matrix.seeds_auto.on) {
    problems.add(source.place_of("seeds"),
                 fmt::format("a comparison of {} pairs draws {} runs, and there are {} seeds", pairs, drawn,
                             matrix.seeds.size()));
  }
  source.same_as_cell = true;
  matrix.forced_steps.clear();
  matrix.certify_steps = 0;
}

std::string headline(const Matrix& matrix) {
  const CalibrationConfig& own = section_of<CalibrationConfig>(matrix);
  return fmt::format("{} synthetic draws, and {} comparisons of {} pairs from {}", own.draws, own.comparisons,
                     own.pairs, counted(static_cast<int64_t>(matrix.seeds.size()), "run"));
}

}  // namespace

const QuestionPlan& plan() {
  static const QuestionPlan kPlan{
      .name = "calibration",
      .help = "do the tests keep their promises",
      .measures_primary = true,
      .references = References::none,
      .looks = InterimAnalyses::tried,
      .section = []() -> std::any { return CalibrationConfig{}; },
      .fields = []() -> std::span<const MatrixField> { return kFields; },
      .finish = &finish,
      .headline = &headline,
  };
  return kPlan;
}

}  // namespace lockstep::questions::calibration
