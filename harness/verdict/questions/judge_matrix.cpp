// The judge with its real sources: traces and rank results on disk.

#include "harness/base/kept_pages.h"
#include "harness/verdict/compare/band.h"
#include "harness/verdict/compare/compare.h"
#include "harness/verdict/evidence/noise_scale.h"
#include "harness/verdict/questions/matrix_judge.h"

namespace lockstep {

Results judge_matrix(const Plan& plan, const JudgeOptions& options) {
  const KeptPages kept;  // traces of a wide model come and go by hundreds of megabytes
  return judge_matrix_from(plan, options,
                           {read_rank_result, compare_runs, judge_forced, certify, read_noise_scale, hold_to_band});
}

}  // namespace lockstep
