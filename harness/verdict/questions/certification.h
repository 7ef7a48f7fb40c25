#pragma once
// Do real ranks compute what the emulated run that was judged in their place has computed?

#include <vector>

#include "harness/verdict/questions/evidence_sources.h"
#include "harness/verdict/questions/matrix_evidence.h"

namespace lockstep {

/// Writes the cell's certification, or why there is none, into the result. Bits are compared first, and certify whatever the
/// backend; where they part over one that publishes no order of adding, the prefix is held to a band.
void judge_certification(const MatrixEvidence& evidence, const EvidenceSources& sources, const Cell& cell,
                         const std::vector<SeedPair>& pairs, CellResult& result);

/// Real ranks part from the emulated run that was judged in their place: whatever that run shows does not hold for them. The result
/// must have a divergence in its certification.
void apply_certification_divergence(CellResult& result);

}  // namespace lockstep
