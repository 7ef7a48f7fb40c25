#pragma once
// Noise scales and rules of the learning rate in words, the same in the summary and in every report.

#include <string>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// "From 1x3 to 8x3 (3 to 24 rows) sqrt has the best mean 24-way accuracy over 10 paired seeds; ... predicted 0.42 (range 0.28
/// to 0.56) at a noise scale of 35 rows, measured 0.40 (95 % interval 0.20 to 0.70)." `unmeasured` says why no exponent was
/// measured.
std::string growth_sentence(const Growth& growth, const std::string& unmeasured);

/// "at equally many samples"; "at 8 times the samples".
std::string samples_in_words(double ratio);

/// "35 rows (95 % interval 28 to 44), over 400 steps", of the estimate alone; the caveat stands beside it.
std::string noise_scale_words(const NoiseScale& scale);

}  // namespace lockstep
