#include "tests/support/judged_fixture.h"

#include <limits>

#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

/// At step 50 alone, by as much in every seed.
void part_at_one_step(support::SyntheticMatrix& matrix, const std::string& cell) {
  for (const int64_t seed : matrix.plan.matrix.seeds) {
    Series& curve = matrix.result(support::SyntheticMatrix::id_of(cell, seed)).curves["accuracy_24"];
    for (std::size_t i = 0; i < curve.steps.size(); ++i) {
      if (curve.steps[i] == 50) curve.values[i] -= 0.1;
    }
  }
}

NoiseScale without_theory() {
  NoiseScale scale;
  scale.small_batch = 3;
  scale.big_batch = 24;
  scale.steps = 100;
  scale.batch = scale.interval.high = std::numeric_limits<double>::infinity();
  scale.interval.low = 40;
  scale.caveat = "The theory does not apply.";
  return scale;
}

}  // namespace

Results judged_results() {
  support::SyntheticMatrix matrix;
  matrix.add_cell({"8x3 global", 0.0, 0.03});
  matrix.add_cell({"8x3 global dropout", 0.002, 0.008});
  matrix.add_cell({"8x3 global rank_seed=same", -0.017, 0.008});
  matrix.add_cell({"8x3 mixed", 0.02, 0.036, 0, false, {VerdictKind::equivalent, VerdictKind::inconclusive}});
  matrix.add_cell({"8x3 local", -0.094, 0.02, -0.1, false, {VerdictKind::divergent}});
  matrix.add_cell({"8x3 layer", 0.0});
  matrix.add_cell({"8x3 global lr_scale=0.125", -0.347, 0.018, 0.2, true});
  part_at_one_step(matrix, "8x3 global dropout");
  Failure died;
  died.run = support::SyntheticMatrix::id_of("8x3 layer", 2);
  died.kind = FailureKind::died;
  died.rank = 3;
  died.step = 17;
  died.operation = "all_gather loss.actions";
  died.message = "killed by signal 9";
  matrix.options.failures[died.run] = died;
  EvidenceSources sources = matrix.sources();
  sources.read_noise_scale = [](const RunConfig&, const std::string&) { return without_theory(); };
  Results results = judge_matrix_from(matrix.plan, matrix.options, sources);
  // What differs from machine to machine.
  results.provenance = {{"build", "0.1.0"}};
  results.declaration = Declaration{80, 0, 80, {{"margin", "0.02", "0.03", 80}}};
  return results;
}

}  // namespace lockstep
