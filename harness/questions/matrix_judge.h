#pragma once
// Judges a whole matrix. What reads and compares runs is handed in, so that the rules can be tried without
// traces.

#include <functional>
#include <string>

#include "harness/causes/mechanism.h"
#include "harness/compare/forced/forced.h"
#include "harness/evidence/run_evidence.h"
#include "harness/questions/judge.h"

namespace lockstep {

/// Where the judge's evidence comes from. Each may throw std::runtime_error (TraceError, OutcomeError): the
/// cell failed.
struct EvidenceSources {
  RankResultReader read_rank_result;
  std::function<Mechanism(const CompareOptions&)> compare_runs;
  std::function<Mechanism(const ForcedInputs&)> judge_forced;
  std::function<Certification(const std::string& emulated_dir, const std::string& real_dir, int64_t asked)>
      certify;
  std::function<Mechanism(const ForcedInputs&)> judge_certificate;
  std::function<StepCosts(const std::string& run_dir)> read_costs;
  /// Of a free run; empty: no noise scale is asked for.
  std::function<std::optional<NoiseScale>(const RunConfig& config, const std::string& run_dir)>
      read_noise_scale = {};
};

/// judge_matrix with these sources. The result does not depend on options.jobs.
///
/// A cell's verdict answers the matrix's question, and a power control's is its outcome whatever the
/// question. Over both stand: `failed` if a run that the answer needs did not finish or cannot be read, and
/// `divergent`, never as expected, if real ranks part from the emulated run that was judged in their place.
Results judge_matrix_from(const Plan& plan, const JudgeOptions& options, const EvidenceSources& sources);

}  // namespace lockstep
