#pragma once
// The trainable tensors of a model, as plain tensors in a named list.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace lockstep {

/// Names read "group.tensor"; the group is what gradient signatures are given for.
struct ParameterList {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;  ///< leaves that require gradients

  /// Adds a leaf; returns it.
  at::Tensor add(const std::string& name, const at::Tensor& value) {
    at::Tensor leaf = value.detach().contiguous().requires_grad_(true);
    names.push_back(name);
    tensors.push_back(leaf);
    return leaf;
  }
};

}  // namespace lockstep
