#include "harness/verdict/questions/certification.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "harness/base/machine.h"

namespace lockstep {

Failure judge_failure(FailureKind kind, const std::string& run, std::string message) {
  Failure failure;
  failure.kind = kind;
  failure.run = run;
  failure.message = std::move(message);
  return failure;
}

MatrixEvidence::MatrixEvidence(const Plan& plan, const JudgeOptions& options, const RankResultReader& read)
    : plan_(plan), options_(options), arms_(plan), evidence_(plan.runs.size()) {
  for (std::size_t i = 0; i < plan.runs.size(); ++i) index_.emplace(plan.runs[i].id, i);
  parallel_for(plan.runs.size(), options.jobs, [&](std::size_t i) {
    const PlannedRun& run = plan_.runs[i];
    const auto launched = options_.failures.find(run.id);
    evidence_[i] =
        gather_run(run, dir_of(run), launched == options_.failures.end() ? nullptr : &launched->second, read,
                   plan_.matrix.primary.metric);
  });
}

namespace {

/// Bits part, and what carried the real ranks may add in any order: then that alone is no finding, and each step's sums are held to
/// what another order may give. False where bits decide.
bool hold_prefix_to_band(const MatrixEvidence& evidence, const EvidenceSources& sources, const Cell& cell, const PlannedRun& real,
                         CellResult& result) {
  const PlannedRun* forced = evidence.arms().single_run(cell, RunRole::certify_forced);
  if (forced == nullptr || evidence.of(real).certified_by != kByBand) return false;
  result.certification = sources.hold_to_band({evidence.dir_of(real), evidence.dir_of(*forced), &real.config, result.certification.asked});
  return true;
}

}  // namespace

void judge_certification(const MatrixEvidence& evidence, const EvidenceSources& sources, const Cell& cell,
                         const std::vector<SeedPair>& pairs, CellResult& result) {
  const Matrix& matrix = evidence.matrix();
  if (cell.noise) return;
  const PlannedRun* real = evidence.arms().single_run(cell, RunRole::certify);
  const PlannedRun* first = pairs.empty() ? nullptr : pairs.front().cell;
  const bool stands_in =
      first && first->config.backend == Backend::emulated && first->config.layout.world_size > 1;
  Certification& certification = result.certification;
  if (!real && !(stands_in && certifies_prefixes(matrix.ranks) && matrix.certify_steps > 0)) return;
  const int64_t asked = std::min(matrix.certify_steps, cell.config.steps - cell.config.resume_step);
  const int64_t seed = real ? real->config.seed : cell.config.seed;
  auto describe = [&](Certification& c) {
    c.wanted = true;
    c.asked = asked;
    c.seed = seed;
    if (c.backend.empty()) c.backend = word_of(real ? real->config.transport : cell.config.transport);
  };
  describe(certification);
  if (result.failure) return;
  const auto emulated = std::ranges::find(pairs, seed, &SeedPair::seed);
  if (!real || emulated == pairs.end()) {
    result.failure =
        judge_failure(FailureKind::lost, real ? real->id : result.run,
                      "the plan has no pair of an emulated run and a real prefix of one seed to certify");
    return;
  }
  try {
    certification = sources.certify(evidence.dir_of(*emulated->cell), evidence.dir_of(*real), asked);
    describe(certification);
    if (certification.divergence && hold_prefix_to_band(evidence, sources, cell, *real, result)) describe(certification);
  } catch (const std::runtime_error& error) {
    result.failure = judge_failure(FailureKind::unreadable, real->id, error.what());
    return;
  }
  if (!certification.divergence && certification.steps < asked) {
    result.failure = judge_failure(
        FailureKind::lost, real->id,
        fmt::format("the real prefix certifies {} of {} steps and then ends", certification.steps, asked));
  }
}

void apply_certification_divergence(CellResult& result) {
  const Divergence& divergence = *result.certification.divergence;
  if (!result.mechanism) result.mechanism.emplace();
  result.mechanism->verdict = VerdictKind::divergent;
  result.mechanism->first_divergence = divergence;
  result.mechanism->cause.reset();  // A cause of the emulated run's own divergence says nothing of this one.
  result.mechanism->sentence =
      "The real ranks differ from the emulated run that was judged in their place: " +
      (divergence.sentence.empty() ? fmt::format("step {}, {}", divergence.step, divergence.where)
                                   : divergence.sentence);
  result.verdict = VerdictKind::divergent;
  result.as_expected = false;
}

}  // namespace lockstep
