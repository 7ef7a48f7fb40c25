#include "harness/trainers/comm/tensor_view.h"

#include <ATen/ATen.h>

#include <stdexcept>

namespace lockstep {

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::float32;
    case at::kDouble:
      return DType::float64;
    case at::kLong:
      return DType::int64;
    case at::kHalf:
      return DType::float16;
    case at::kInt:
      return DType::int32;
    case at::kBFloat16:
      return DType::bfloat16;
    case at::kBool:
    case at::kByte:
      return DType::boolean;
    default:
      throw std::invalid_argument(std::string("traces do not know the type ") +
                                  c10::toString(tensor.scalar_type()));
  }
}

TensorView view_of(const at::Tensor& tensor, std::span<const int64_t> row_positions) {
  if (!tensor.is_contiguous()) {
    throw std::invalid_argument("only contiguous tensors can be traced");
  }
  return {tensor.const_data_ptr(),
          dtype_of(tensor),
          {tensor.sizes().data(), tensor.sizes().size()},
          row_positions};
}

}  // namespace lockstep
