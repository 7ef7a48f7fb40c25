#include "losses/infonce.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

at::Tensor wave(at::IntArrayRef shape, double pace) {
  return at::arange(c10::multiply_integers(shape), at::kFloat).mul(pace).sin().reshape(shape);
}

/// Two layers, the first of which also reads its input's mask.
std::vector<at::Tensor> layers(const std::vector<at::Tensor>& in, bool) {
  const at::Tensor seen = at::where(in[1].unsqueeze(1), in[0], 0.0);
  const at::Tensor hidden = at::tanh(at::linear(seen, in[2], in[3]));
  return {at::linear(hidden, in[4], in[5]), hidden};
}

struct Pass {
  std::vector<at::Tensor> gradients;  ///< of the input and the parameters
  std::string order;                  ///< in which parameters had theirs
  at::Tensor loss;
};

Pass pass(bool recompute, const ModelPiece& piece) {
  std::vector<at::Tensor> activations{wave({5, 3}, 0.7).requires_grad_(true),
                                      at::tensor({1, 1, 0, 1, 1}).to(at::kBool)};
  std::vector<at::Tensor> parameters{wave({4, 3}, 0.3), wave({4}, 0.9), wave({2, 4}, 1.3), wave({2}, 1.1)};
  Pass result;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].requires_grad_(true);
    parameters[i].register_hook([&result, i](const at::Tensor& gradient) {
      result.order += static_cast<char>('a' + i);
      return gradient;
    });
  }
  std::vector<at::Tensor> inputs = activations;
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  const std::vector<at::Tensor> out =
      recompute ? recomputed(piece, activations, parameters) : piece(inputs, false);
  result.loss = out[0].square().sum() + out[1].sin().sum();
  result.loss.backward();
  result.gradients.push_back(activations[0].grad());
  for (const at::Tensor& parameter : parameters) {
    result.gradients.push_back(parameter.grad());
  }
  return result;
}

TEST(Recomputed, RestsWhereNoGradientReachesItAndIsAskedTo) {
  for (const bool rests : {false, true}) {
    int calls = 0;
    const auto piece = [&calls](const std::vector<at::Tensor>& in, bool) {
      ++calls;
      return std::vector<at::Tensor>{in[0] * in[1]};
    };
    const at::Tensor x = wave({3}, 0.7).requires_grad_(true), w = wave({3}, 0.4).requires_grad_(true);
    (recomputed(piece, {x}, {w}, rests).front() * 0).sum().backward();
    EXPECT_EQ(calls, rests ? 1 : 2);
    EXPECT_EQ(w.grad().defined(), !rests);
    (recomputed(piece, {x}, {w}, rests).front() * 2).sum().backward();
    EXPECT_TRUE(at::equal(w.grad(), 2 * x.detach())) << rests;
  }
}

TEST(Recomputed, GivesTheSameBitsAndTheSameOrder) {
  const Pass kept = pass(false, layers), again = pass(true, layers);
  EXPECT_TRUE(at::equal(kept.loss, again.loss));
  for (std::size_t i = 0; i < kept.gradients.size(); ++i) {
    EXPECT_TRUE(at::equal(kept.gradients[i], again.gradients[i])) << i;
  }
  EXPECT_EQ(again.order, kept.order) << "the order in which a reducer would see them";
}

TEST(Recomputed, SaysWhichPassItIsAndAWrongSecondOneShows) {
  std::string passes;
  const Pass kept = pass(false, layers);
  const Pass wrong = pass(true, [&](const std::vector<at::Tensor>& in, bool again) {
    passes += again ? "again " : "first ";
    std::vector<at::Tensor> out = layers(in, again);
    out[0] = again ? out[0] * 2 : out[0];
    return out;
  });
  EXPECT_EQ(passes, "first again ");
  EXPECT_TRUE(at::equal(kept.loss, wrong.loss));
  EXPECT_FALSE(at::equal(kept.gradients[1], wrong.gradients[1]));
}

TEST(Recomputed, LetsGoOfThePieceWithTheGraph) {
  const auto owned = std::make_shared<int>(1);
  {
    const Pass done =
        pass(true, [owned](const std::vector<at::Tensor>& in, bool again) { return layers(in, again); });
    EXPECT_GT(owned.use_count(), 1);
  }
  EXPECT_EQ(owned.use_count(), 1);
}

}  // namespace
}  // namespace lockstep
