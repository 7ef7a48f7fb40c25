// What `question: certificate` asks of a config: gradients at a few steps, in float64, without a reference of the
// user's.

#include <fmt/format.h>

#include "harness/base/text.h"
#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/plan/question.h"

namespace lockstep::questions::certificate {
namespace {

/// A wrong loss can look nearly right at first and not after training: gradients are compared at both ends.
void finish(MatrixSource& source, Problems& problems) {
  constexpr int64_t kLastStep = 60;
  constexpr double kExact = 1e-12;
  if (source.reference_given) {
    problems.add(source.place_of("reference"),
                 "the question certificate derives the reference of each cell: remove it");
  }
  const auto is_given = [&source](std::string_view key) { return source.places.contains(key); };
  RunConfig& base = source.base;
  if (!is_given("precision")) base.precision = Precision::float64;
  if (!is_given("steps")) base.steps = kLastStep + 1;
  if (!is_given("forced_steps")) source.matrix.forced_steps = {0, kLastStep};
  source.matrix.certify_steps = 0;
  if (source.matrix.band.exact == 0) source.matrix.band.exact = kExact;
}

void check(const MatrixSource& source, const std::vector<Cell>&, Problems& problems) {
  if (source.matrix.seeds.size() > 1) {
    problems.add(source.place_of("seeds"),
                 "a certificate takes one seed");
  }
  if (source.matrix.forced_steps.empty()) {
    problems.add(source.place_of("forced_steps"),
                 "a certificate compares gradients: it needs at least one forced step");
  }
}

std::string headline(const Matrix& matrix) {
  return fmt::format("{} within {:g} of their plain references",
                     counted(static_cast<int64_t>(matrix.cells.size()), "cell"), matrix.band.exact);
}

}  // namespace

const QuestionPlan& plan() {
  static const QuestionPlan kPlan{
      .name = "certificate",
      .help = "are losses exact",
      .trains = false,
      .references = References::plain,
      .finish = &finish,
      .check = &check,
      .headline = &headline,
  };
  return kPlan;
}

}  // namespace lockstep::questions::certificate
