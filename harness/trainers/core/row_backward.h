#pragma once
// A backward pass of a graph so small that most of PyTorch's own would be its preparation: that sets some twenty thread-local
// states anew for each node, which costs a row of exact arithmetic a fifth of its time. The nodes are PyTorch's, called in
// its order, so that the bits are too (a test holds the two against each other).

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace lockstep {

class RowBackward {
 public:
  /// Of these leaves, which require gradients and outlive this object.
  explicit RowBackward(const std::vector<at::Tensor>& leaves);
  ~RowBackward();

  /// d loss / d leaf by leaf; undefined for one that `loss`, a scalar, does not depend on. Hooks on tensors and nodes act. The graph is
  /// kept: other rows may share parts of it. Nothing is added to a leaf's gradient. Throws what a node throws, and
  /// std::logic_error at a node with a hook behind it, which only a reducer has.
  std::vector<at::Tensor> gradients(const at::Tensor& loss);

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
};

}  // namespace lockstep
