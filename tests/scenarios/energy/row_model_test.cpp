// One row's parts of the model have the bits of the model's own, forward and backward.

#include "scenarios/energy/model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "harness/trainers/core/step.h"

namespace lockstep {
namespace {

struct Case {
  EnergyShape shape;
  at::ScalarType dtype;
  int64_t candidates;
  bool dropout, bfloat16, predicted = false;  ///< predicted: candidates have a gradient, too
};

/// Energies and gradients, of parameters and of the candidates' encoder, as a row of exact arithmetic has them.
std::vector<at::Tensor> computed(EnergyModel& model, const Case& of, bool as_one_row) {
  const at::Tensor context = at::linspace(-2, 2, of.shape.context_steps * of.shape.channels, of.dtype)
                                 .sin()
                                 .view({1, of.shape.context_steps, of.shape.channels});
  const at::Tensor mask = at::arange(of.shape.context_steps).ge(of.shape.context_steps / 3).unsqueeze(0);
  const int64_t values = of.shape.action_steps * of.shape.channels;
  const at::Tensor action =
      at::linspace(-1, 3, of.candidates * values, of.dtype).cos().view({of.candidates, values}).requires_grad_(of.predicted);
  const EnergyModel used = of.bfloat16 ? model.cast(at::kBFloat16) : model;
  at::Tensor factors;
  if (of.dropout) {
    factors = (at::linspace(0, 40, of.candidates * of.shape.hidden, of.dtype).sin() > -0.8).to(used.dtype()) * 1.25;
    factors = factors.view({1, of.candidates, of.shape.hidden});
  }
  const at::Tensor encoded = as_one_row ? encode_row_action(used, action) : used.encode_action(action);
  EncodedContext rows = as_one_row ? encode_row_context(used, context, mask) : used.encode_context(context, mask);
  at::Tensor energies;
  if (as_one_row) {
    energies = row_head(used, rows, encoded, factors);
  } else {
    rows.steps_BSD = rows.steps_BSD.alias();
    energies = used.head(rows, encoded, factors);
  }
  const at::Tensor loss = at::logsumexp(-energies.to(of.dtype) / used.temperature(), 1).sum() + energies.select(1, 0).sum();
  std::vector<at::Tensor> results{energies, loss};
  RowBackward row(model.parameters().tensors);
  for (const at::Tensor& gradient : row.gradients(loss)) results.push_back(gradient);
  loss.backward();
  for (at::Tensor& parameter : model.parameters().tensors) {
    results.push_back(std::exchange(parameter.mutable_grad(), at::Tensor()));
  }
  EXPECT_EQ(action.grad().defined(), of.predicted);
  if (of.predicted) results.push_back(action.grad());
  return results;
}

TEST(RowModel, HasTheModelsBits) {
  std::vector<Case> cases;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t width : {1, 8, 32, 37}) {
      for (const int64_t candidates : {1, 2, 24}) {
        cases.push_back({{16, 6, 8, width, 2 * width, 0}, dtype, candidates, candidates != 2, false});
      }
    }
  }
  cases.push_back({{1, 1, 1, 4, 8, 0}, at::kFloat, 3, true, false});
  cases.push_back({{16, 6, 8, 128, 256, 0}, at::kFloat, 24, true, false});
  cases.push_back({{16, 6, 8, 32, 64, 0}, at::kFloat, 24, true, true});
  cases.push_back({{16, 6, 8, 32, 64, 0}, at::kFloat, 24, true, false, true});
  for (const Case& of : cases) {
    EnergyModel model(of.shape, 0.5, 3, of.dtype);
    const std::vector<at::Tensor> expected = computed(model, of, false), found = computed(model, of, true);
    ASSERT_EQ(expected.size(), found.size());
    for (std::size_t k = 0; k < expected.size(); ++k) {
      ASSERT_EQ(expected[k].defined(), found[k].defined()) << k;
      if (!expected[k].defined()) continue;
      EXPECT_EQ(expected[k].sizes(), found[k].sizes()) << k;
      EXPECT_TRUE(at::equal(expected[k], found[k]))
          << k << " of width " << of.shape.width << ", " << of.candidates << " candidates, " << of.dtype;
    }
  }
}

}  // namespace
}  // namespace lockstep
