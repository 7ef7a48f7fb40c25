// Gradients of a row are those of PyTorch's own backward pass, bit for bit.

#include "harness/trainers/core/step.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

namespace lockstep {
namespace {

std::vector<at::Tensor> leaves() {
  std::vector<at::Tensor> leaves{at::linspace(-0.7, 0.9, 24).view({4, 6}), at::linspace(0.3, -0.2, 4),
                                 at::linspace(-1.1, 1.3, 12).view({3, 4}), at::full({}, 0.4), at::ones({5})};
  for (at::Tensor& leaf : leaves) leaf.set_requires_grad(true);
  return leaves;
}

at::Tensor shared_of(const std::vector<at::Tensor>& w) {
  return at::tanh(at::linear(at::linspace(-1, 1, 42).view({7, 6}), w[0], w[1]));
}

/// Broadcast sums, a leaf that is used three times, branches of unequal depth, a part that other rows share. Leaf 4 has no part in it.
at::Tensor loss_of(const std::vector<at::Tensor>& w, const at::Tensor& shared_74, double row) {
  const at::Tensor own_14 = at::silu(at::linear(at::full({1, 6}, row), w[0], w[1])) + w[1];
  const at::Tensor both_73 = at::linear(shared_74 * own_14, w[2]) * at::exp(w[3]);
  return at::logsumexp(both_73.flatten(), {0}) - both_73.select(0, 2).sum() * w[3] + (w[2] * w[2]).sum();
}

std::vector<at::Tensor> by_engine(const std::vector<at::Tensor>& w, const at::Tensor& loss) {
  loss.backward({}, /*retain_graph=*/true);
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& leaf : w) {
    gradients.push_back(leaf.grad().defined() ? leaf.grad().clone() : at::Tensor());
    leaf.mutable_grad() = at::Tensor();
  }
  return gradients;
}

void expect_same(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t p = 0; p < got.size(); ++p) {
    ASSERT_EQ(got[p].defined(), expected[p].defined()) << p;
    if (got[p].defined()) {
      EXPECT_TRUE(at::equal(got[p], expected[p])) << p;
    }
  }
}

TEST(RowBackward, GivesTheEnginesBitsAndKeepsTheGraph) {
  std::vector<at::Tensor> w = leaves();
  RowBackward rows(w);
  const at::Tensor shared_74 = shared_of(w);
  for (const double row : {-0.4, 0.1, 0.75}) {
    const at::Tensor loss = loss_of(w, shared_74, row);
    const std::vector<at::Tensor> expected = by_engine(w, loss);
    expect_same(rows.gradients(loss), expected);
    expect_same(rows.gradients(loss), expected);
    EXPECT_FALSE(expected[4].defined());
    for (const at::Tensor& leaf : w) EXPECT_FALSE(leaf.grad().defined()) << "nothing is added to a leaf's own gradient";
  }
}

TEST(RowBackward, OfALossThatDependsOnNothingIsNothing) {
  RowBackward rows(leaves());
  for (const at::Tensor& gradient : rows.gradients(at::ones({}))) EXPECT_FALSE(gradient.defined());
}

TEST(RowBackward, HearsHooks) {
  std::vector<at::Tensor> w = leaves();
  w[2].register_hook([](const at::Tensor& gradient) { return gradient * 3; });
  RowBackward rows(w);
  const at::Tensor shared_74 = shared_of(w);
  shared_74.register_hook([](const at::Tensor& gradient) { return gradient * -2; });
  const at::Tensor loss = loss_of(w, shared_74, 0.2);
  expect_same(rows.gradients(loss), by_engine(w, loss));
}

struct Refuses : torch::autograd::Function<Refuses> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& input) { return input * 1; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& /*gradients*/) {
    throw std::runtime_error("this node refuses");
  }
};

TEST(RowBackward, ThrowsWhatANodeThrowsAndCanBeUsedAgain) {
  std::vector<at::Tensor> w = leaves();
  RowBackward rows(w);
  EXPECT_THROW(rows.gradients(Refuses::apply(w[3] * 2)), std::runtime_error);
  const at::Tensor loss = loss_of(w, shared_of(w), 0.3);
  expect_same(rows.gradients(loss), by_engine(w, loss));
}

}  // namespace
}  // namespace lockstep
