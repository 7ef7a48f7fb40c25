// The judge with its real sources: traces and rank results on disk.

#include "harness/judge/certificate.h"
#include "harness/judge/compare.h"
#include "harness/judge/matrix_judge.h"
#include "harness/judge/noise_scale.h"

namespace lockstep {

Results judge_matrix(const Plan& plan, const JudgeOptions& options) {
  return judge_matrix_from(plan, options,
                           {read_rank_result, compare_runs, judge_forced, certify, judge_certificate,
                            read_costs, read_noise_scale});
}

}  // namespace lockstep
