#include "harness/verdict/plan/exact_pairs.h"

#include <algorithm>

#include "harness/verdict/plan/question.h"
#include "harness/verdict/plan/resumed.h"

namespace lockstep {
namespace {

RunConfig first_steps(RunConfig config, int64_t seed, int64_t steps) {
  config.arithmetic = Arithmetic::exact;
  config.seed = seed;
  config.backend = Backend::emulated;
  config.stop_after = steps < config.steps ? steps : 0;
  config.eval_every = EvaluationPeriod::never();
  config.checkpoint = CheckpointConfig{};
  begin_by_itself(config);
  config.snapshot_steps.clear();
  return config;
}

}  // namespace

std::optional<ExactPair> exact_pair_of(const Matrix& matrix, const Cell& cell) {
  const int64_t asked = matrix.certify.exact;
  if (asked <= 0 || !asked_by(matrix).trains || !matrix.replay.empty()) return std::nullopt;
  if (cell.noise || cell.anchor || cell.power_control) return std::nullopt;
  if (cell.expected == std::vector{VerdictKind::failed}) return std::nullopt;
  if (cell.config.layout.global_batch() != cell.reference.layout.global_batch()) return std::nullopt;
  if (cell.config.trace == TraceLevel::off || cell.reference.trace == TraceLevel::off) return std::nullopt;
  const int64_t steps = std::min({asked, cell.config.steps, cell.reference.steps});
  const int64_t seed = seeds_of(matrix, cell).front();
  return ExactPair{first_steps(cell.reference, seed, steps), first_steps(cell.config, seed, steps), steps};
}

}  // namespace lockstep
