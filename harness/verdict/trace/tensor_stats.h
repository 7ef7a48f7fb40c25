#pragma once
// The two builds of tensor_stats, so that a test can hold them against each other.

#include "harness/verdict/trace/record.h"

namespace lockstep::detail {

/// tensor_stats with the instructions that every machine of this kind has.
TensorStats tensor_stats_portable(const TensorView& tensor);

/// tensor_stats with AVX2; falls back to the portable one where the processor lacks it.
TensorStats tensor_stats_avx2(const TensorView& tensor);

bool has_avx2();

}  // namespace lockstep::detail
