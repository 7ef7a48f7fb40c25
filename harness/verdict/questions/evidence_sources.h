#pragma once
// What reads and compares runs, as functions, so that the judge's rules can be tried without traces.

#include <functional>
#include <optional>
#include <string>

#include "harness/verdict/causes/name_cause.h"
#include "harness/verdict/compare/band.h"
#include "harness/verdict/compare/forced/forced.h"
#include "harness/verdict/evidence/run_evidence.h"

namespace lockstep {

struct QuestionJudge;

/// Where the judge's evidence comes from. Each may throw std::runtime_error (TraceError, OutcomeError): the
/// cell failed.
struct EvidenceSources {
  RankResultReader read_rank_result;
  std::function<Mechanism(const CompareOptions&)> compare_runs;
  std::function<Mechanism(const ForcedInputs&)> judge_forced;
  std::function<Certification(const std::string& emulated_dir, const std::string& real_dir, int64_t asked)>
      certify;
  /// Of a free run; empty: no noise scale is asked for.
  std::function<std::optional<NoiseScale>(const RunConfig& config, const std::string& run_dir)>
      read_noise_scale = {};
  /// Asked only where bits part over a backend that publishes no order of adding.
  std::function<Certification(const BandInputs& inputs)> hold_to_band = {};
  /// Null: that of the matrix's question.
  const QuestionJudge* question = nullptr;
};

}  // namespace lockstep
