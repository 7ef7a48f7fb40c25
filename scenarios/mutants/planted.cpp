#include "scenarios/mutants/planted.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "harness/trainers/core/task.h"

namespace lockstep {

void flip_first_element(at::Tensor& tensor, int bit) {
  if (tensor.scalar_type() == at::kDouble) {
    *static_cast<uint64_t*>(tensor.mutable_data_ptr()) ^= uint64_t{1} << (bit == 31 ? 63 : bit + 29);
  } else {
    *static_cast<uint32_t*>(tensor.mutable_data_ptr()) ^= 1U << bit;
  }
}

at::Tensor without_gradient(const at::Tensor& tensor) { return tensor.detach() + tensor * 0.0; }

at::Tensor& parameter_of(ParameterList& parameters, const std::string& name) {
  for (std::size_t i = 0; i < parameters.names.size(); ++i) {
    if (parameters.names[i] == name) {
      return parameters.tensors[i];
    }
  }
  throw std::invalid_argument("the model has no parameter " + name);
}

}  // namespace lockstep
