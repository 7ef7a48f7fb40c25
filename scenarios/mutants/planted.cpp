#include "scenarios/mutants/planted.h"

#include <ATen/ATen.h>

#include <cstring>
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

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.is_same(b)) {
    return a.defined() == b.defined();
  }
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return false;
  }
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

bool differs(const at::Tensor& before, const at::Tensor& after) {
  if (before.is_same(after)) {
    return false;
  }
  return before.requires_grad() || after.requires_grad() || !same_bits(before, after);
}

}  // namespace lockstep
