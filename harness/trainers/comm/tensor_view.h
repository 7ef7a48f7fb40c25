#pragma once
// at::Tensor as the torch-free tracer sees it.

#include <ATen/core/Tensor.h>

#include <span>

#include "harness/verdict/trace/record.h"

namespace lockstep {

/// Throws std::invalid_argument for types that traces do not know.
DType dtype_of(const at::Tensor& tensor);

/// `tensor` must be contiguous and outlive the view. `row_positions`: see TensorView.
TensorView view_of(const at::Tensor& tensor, std::span<const int64_t> row_positions = {});

}  // namespace lockstep
