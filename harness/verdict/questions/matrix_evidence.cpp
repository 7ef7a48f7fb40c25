#include "harness/verdict/questions/matrix_evidence.h"

#include "harness/base/parallel.h"

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

}  // namespace lockstep
