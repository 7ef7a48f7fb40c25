// A number that is not finite is named alike on all ranks, and nobody takes an update from it.

#include "harness/trainers/core/step.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "harness/trainers/comm/checked.h"
#include "harness/trainers/comm/emulated.h"
#include "harness/trainers/core/update.h"

namespace lockstep {
namespace {

constexpr int kRanks = 8;
constexpr std::size_t kTensors = 20;
const double kKinds[] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::infinity()};

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

TEST(GradientGuard, NamesRankTensorElementAndKindInAllOf480CasesOnAllRanks) {
  EmulatedWorld world(kRanks, 30);
  std::vector<int> named(kRanks, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Comm> comm = world.comm(rank);
      for (int culprit = 0; culprit < kRanks; ++culprit) {
        for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
          for (const double kind : kKinds) {
            const auto element = static_cast<int64_t>((tensor * 7 + static_cast<std::size_t>(culprit)) % (3 + tensor));
            GradientGuard guard;
            guard.begin();
            for (std::size_t t = 0; t < kTensors; ++t) {
              at::Tensor gradient = at::ones({static_cast<int64_t>(3 + t)});
              if (rank == culprit && t == tensor) gradient[element] = kind;
              guard.look(t, gradient);
            }
            const auto found = guard.agree(*comm);
            const bool right = found && found->rank == culprit && found->tensor == tensor && found->index == element &&
                               same(found->value, kind) && found->ranks == 1;
            named[static_cast<std::size_t>(rank)] += right ? 1 : 0;
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(named, testing::Each(kRanks * static_cast<int>(kTensors) * 3));
}

TEST(GradientGuard, IsSilentOnNumbersThatAreLarge) {
  const std::unique_ptr<Comm> comm = make_solo_comm();
  GradientGuard guard;
  guard.begin();
  guard.look(0, at::full({4}, 3e38F));  // their sum overflows
  EXPECT_FALSE(guard.agree(*comm));
}

/// One weight of three numbers; the loss is its sum times a factor.
class FactorTask : public Task {
 public:
  FactorTask() { weight_ = parameters_.add("w", at::full({3}, 2.0F)); }
  ParameterList& parameters() override { return parameters_; }
  StepOutput forward(const StepInput&) override {
    StepOutput output;
    output.row_losses_B = (weight_ * factor).sum().reshape({1});
    output.loss = output.row_losses_B.sum();
    return output;
  }
  std::map<std::string, double> evaluate(Evaluation, const Heartbeat&) override { return {}; }
  at::Tensor factor = at::ones({3});

 private:
  ParameterList parameters_;
  at::Tensor weight_;
};

class GuardedSteps : public testing::Test {
 protected:
  /// The weight after a step with this factor at its second element.
  at::Tensor after(float factor, NanGuard policy) {
    RunConfig config;
    config.layout = {1, 1};
    config.watch.nan_guard = policy;
    const std::unique_ptr<Comm> comm = make_solo_comm();
    TraceWriter trace("", {"", 0, 1, "", TraceLevel::off, "real"});
    FactorTask task;
    RankContext context;
    context.config = &config;
    context.comm = comm.get();
    context.trace = &trace;
    context.task = &task;
    context.heartbeat = [](int64_t, const std::string&) {};
    TracedStep step(context);
    Update update(context);
    task.factor[1] = factor;
    TracedStep::Options options;
    options.ids = {0};
    const TracedStep::Outcome outcome = step.run(7, options);
    update.apply(7, outcome, 0.1, Keep::by_level);
    return task.parameters().tensors[0].detach().clone();
  }
};

TEST_F(GuardedSteps, LeaveEveryParameterAsItWas) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(after(nan, NanGuard::skip).equal(at::full({3}, 2.0F)));
  EXPECT_FALSE(after(nan, NanGuard::off).isfinite().all().item<bool>()) << "the guard is what protects them";
  EXPECT_FALSE(after(1, NanGuard::skip).equal(at::full({3}, 2.0F))) << "a good step is taken";
}

TEST_F(GuardedSteps, EndTheRunWithTheNameOfTheNumber) {
  try {
    after(std::numeric_limits<float>::infinity(), NanGuard::stop);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "nan_guard: rank 0: the gradient of w is infinity at element 1 (step 7)");
  }
}

}  // namespace
}  // namespace lockstep
