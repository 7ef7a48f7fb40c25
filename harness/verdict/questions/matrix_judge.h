#pragma once

#include "harness/verdict/questions/evidence_sources.h"
#include "harness/verdict/questions/judge.h"

// Judges a whole matrix. What reads and compares runs is handed in, so that the rules can be tried without
// traces.

namespace lockstep {

/// judge_matrix with these sources. The result does not depend on options.jobs.
///
/// A cell's verdict answers the matrix's question, and a power control's is its outcome whatever the
/// question. Two verdicts come before these: `failed` if a run that the answer needs did not finish or cannot
/// be read, and `divergent`, never as expected, if real ranks part from the emulated run that was judged in
/// their place.
Results judge_matrix_from(const Plan& plan, const JudgeOptions& options, const EvidenceSources& sources);

}  // namespace lockstep
