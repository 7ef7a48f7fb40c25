// The energy head that takes its rows in parts against the head of all rows at once.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "scenarios/energy/model.h"
#include "scenarios/energy/parts.h"
#include "scenarios/energy/spec.h"

namespace lockstep {
namespace {

constexpr int64_t kRows = 140, kCandidates = 150;

struct Pass {
  at::Tensor energies;
  std::vector<at::Tensor> gradients;
};

double most_apart(const Pass& a, const Pass& b) {
  double most = (a.energies - b.energies).abs().max().item<double>();
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    most = std::max(most, ((a.gradients[i] - b.gradients[i]).norm() / (b.gradients[i].norm() + 1e-12)).item<double>());
  }
  return most;
}

class Parts : public testing::Test {
 protected:
  /// `first`: the gradient reaches rows from there on alone. `whole`: of the model itself, which knows no parts.
  Pass pass(bool whole, int64_t first = 0) {
    const EnergyShape shape;
    EnergyModel model(shape, 0.5, 7, at::kDouble);
    const auto wave = [](at::IntArrayRef sizes, double pace) {
      return at::arange(c10::multiply_integers(sizes), at::kDouble).mul(pace).sin().reshape(sizes);
    };
    const EncodedContext context = model.encode_context(wave({kRows, shape.context_steps, shape.channels}, 0.37),
                                                        at::ones({kRows, shape.context_steps}, at::kBool));
    const at::Tensor action = model.encode_action(wave({kCandidates, shape.action_steps * shape.channels}, 0.73));
    const at::Tensor factors = wave({kRows, kCandidates, shape.hidden}, 0.11) + 1;
    const auto drawn = [&](int64_t from, int64_t rows, bool) { return factors.narrow(0, from, rows); };
    RunConfig config(energy_spec());
    config.precision = Precision::float64;
    Pass result;
    result.energies = whole ? model.head(context, action, factors) : StepModel(config, model, false).head(context, action, false, drawn);
    const at::Tensor weights = wave({kRows, kCandidates}, 0.05);
    (result.energies * weights).narrow(0, first, kRows - first).sum().backward();
    for (const at::Tensor& parameter : model.parameters().tensors) {
      if (parameter.grad().defined()) result.gradients.push_back(parameter.grad().clone());
    }
    result.energies = result.energies.detach();
    return result;
  }
};

TEST_F(Parts, AreTakenOfWhatWouldKeepTooMuchAlone) {
  const EnergyShape shape;
  const int64_t of_pair = numbers_of_pair(shape.width, shape.hidden, shape.context_steps);
  EXPECT_LT(rows_at_once(kRows, kCandidates, of_pair), kRows) << "else this test shows nothing";
  EXPECT_EQ(rows_at_once(96, 96, of_pair), 96);
  EXPECT_EQ(rows_at_once(24, 24, numbers_of_pair(512, 1024, 16)), 24);
  EXPECT_EQ(rows_at_once(4096, int64_t{1} << 30, of_pair), 1);
}

TEST_F(Parts, MeanWhatTheWholeMeans) {
  const Pass whole = pass(true), parts = pass(false);
  ASSERT_EQ(parts.gradients.size(), whole.gradients.size());
  EXPECT_LT(most_apart(parts, whole), 1e-12);
}

TEST_F(Parts, RestWhereNoGradientReachesThem) {
  const Pass whole = pass(true, 100), parts = pass(false, 100);
  ASSERT_EQ(parts.gradients.size(), whole.gradients.size());
  EXPECT_LT(most_apart(parts, whole), 1e-12);
}

TEST_F(Parts, GiveTheSameBitsEachTime) {
  EXPECT_EQ(most_apart(pass(false), pass(false)), 0);
}

}  // namespace
}  // namespace lockstep
