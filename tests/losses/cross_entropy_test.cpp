// Cross-entropy over rows of unequal length, and every denominator under every partitioning of rows to ranks.
//
// B = rows, T = time steps, K = classes, F = features.

#include "losses/cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "harness/trainers/comm/checked.h"
#include "harness/trainers/comm/emulated.h"

namespace lockstep {
namespace {

constexpr int64_t kRows = 12, kSteps = 7, kClasses = 3, kFeatures = 5;

at::Tensor wave(at::IntArrayRef shape, double phase = 0) {
  return at::arange(c10::multiply_integers(shape), at::kDouble).mul(0.73).add(phase).sin().mul(1.7).reshape(shape);
}

/// Row i has these valid steps: unequal, one of a single step, one of none.
const std::vector<int64_t> kValidSteps{7, 1, 4, 2, 6, 0, 3, 5, 7, 2, 1, 4};

at::Tensor valid_of(const std::vector<int64_t>& rows) {
  std::vector<int64_t> steps;
  for (const int64_t row : rows) {
    steps.push_back(kValidSteps[static_cast<std::size_t>(row)]);
  }
  return at::arange(kSteps, at::kLong).unsqueeze(0) <
         at::tensor(at::ArrayRef<int64_t>(steps), at::kLong).unsqueeze(1);
}

at::Tensor targets_of(const std::vector<int64_t>& rows) {
  const at::Tensor index = at::tensor(at::ArrayRef<int64_t>(rows), at::kLong);
  return (index.unsqueeze(1) * 2 + at::arange(kSteps, at::kLong).unsqueeze(0)) % kClasses;
}

std::vector<int64_t> all_rows() {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < kRows; ++row) {
    rows.push_back(row);
  }
  return rows;
}

CrossEntropyInput input_of(const at::Tensor& logits, double smoothing) {
  return {logits, targets_of(all_rows()), valid_of(all_rows()), smoothing};
}

TEST(CrossEntropy, EqualsPlainLoopsInValueAndGradient) {
  for (const double smoothing : {0.0, 0.1}) {
    const at::Tensor logits = wave({kRows, kSteps, kClasses}).requires_grad_(true);
    const CrossEntropyInput input = input_of(logits, smoothing);
    const at::Tensor sums = cross_entropy_row_sums(input);
    sums.sum().backward();
    const at::Tensor flat = logits.detach().flatten(), gradient = logits.grad().flatten();
    const at::Tensor targets = at::where(input.valid_BT, input.target_BT, -1).contiguous();
    const CrossEntropyLoops loops = cross_entropy_loops(
        {kRows, kSteps, kClasses}, {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()},
        {targets.data_ptr<int64_t>(), targets.data_ptr<int64_t>() + targets.numel()}, smoothing);
    for (int64_t row = 0; row < kRows; ++row) {
      EXPECT_NEAR(sums[row].item<double>(), loops.row_sums[static_cast<std::size_t>(row)], 1e-13) << row;
    }
    for (int64_t i = 0; i < gradient.numel(); ++i) {
      EXPECT_NEAR(gradient[i].item<double>(), loops.d_logits[static_cast<std::size_t>(i)], 1e-14) << i;
    }
  }
}

TEST(CrossEntropy, ItsGradientIsThatOfFiniteDifferences) {
  constexpr double kShift = 1e-5;
  const at::Tensor logits = wave({kRows, kSteps, kClasses}).requires_grad_(true);
  cross_entropy_row_sums(input_of(logits, 0.1)).sum().backward();
  for (int64_t i = 0; i < logits.numel(); i += 11) {
    double sides[2];
    for (const int side : {0, 1}) {
      at::Tensor moved = logits.detach().clone();
      moved.view({-1})[i] += side == 0 ? -kShift : kShift;
      sides[side] = cross_entropy_row_sums(input_of(moved, 0.1)).sum().item<double>();
    }
    EXPECT_NEAR(logits.grad().flatten()[i].item<double>(), (sides[1] - sides[0]) / (2 * kShift), 1e-9) << i;
  }
}

TEST(CrossEntropy, EqualsItsDefinition) {
  for (const double smoothing : {0.0, 0.2}) {
    const at::Tensor fast = wave({kRows, kSteps, kClasses}).requires_grad_(true);
    const at::Tensor plain = wave({kRows, kSteps, kClasses}).requires_grad_(true);
    const at::Tensor a = cross_entropy_row_sums(input_of(fast, smoothing));
    const at::Tensor b = cross_entropy_row_sums_by_definition(input_of(plain, smoothing));
    EXPECT_LT((a - b).abs().max().item<double>(), 1e-13);
    EXPECT_EQ(b[5].item<double>(), 0.0) << "a row without a valid step";
    a.sum().backward();
    b.sum().backward();
    EXPECT_LT((fast.grad() - plain.grad()).abs().max().item<double>(), 1e-14);
  }
}

TEST(CrossEntropy, PaddingDoesNotMatterEvenIfItIsNoNumber) {
  at::Tensor values = wave({kRows, kSteps, kClasses});
  const at::Tensor before = cross_entropy_row_sums(input_of(values, 0.1));
  const at::Tensor padding = valid_of(all_rows()).logical_not().unsqueeze(2);
  const at::Tensor spoiled = values.masked_fill(padding, std::numeric_limits<double>::quiet_NaN()).requires_grad_(true);
  const at::Tensor after = cross_entropy_row_sums(input_of(spoiled, 0.1));
  EXPECT_TRUE(at::equal(before, after));
  after.sum().backward();
  EXPECT_TRUE(spoiled.grad().isfinite().all().item<bool>());
  EXPECT_EQ(spoiled.grad().masked_select(padding).abs().sum().item<double>(), 0.0);
}

TEST(CrossEntropy, ConstantLogitsGiveLogK) {
  const at::Tensor sums = cross_entropy_row_sums(input_of(at::ones({kRows, kSteps, kClasses}, at::kDouble), 0.3));
  for (std::size_t row = 0; row < kValidSteps.size(); ++row) {
    EXPECT_NEAR(sums[static_cast<int64_t>(row)].item<double>(),
                static_cast<double>(kValidSteps[row]) * std::log(3.0), 1e-13);
  }
}

TEST(CrossEntropy, RefusesShapesThatDoNotFit) {
  CrossEntropyInput input = input_of(wave({kRows, kSteps, kClasses}), 0);
  input.valid_BT = input.valid_BT.narrow(1, 0, kSteps - 1);
  EXPECT_THROW(cross_entropy_row_sums(input), std::invalid_argument);
  EXPECT_THROW(cross_entropy_row_sums_by_definition(input), std::invalid_argument);
}

LossCounts counts_of(const std::vector<int64_t>& rows) {
  LossCounts counts{static_cast<double>(rows.size()), 0};
  for (const int64_t row : rows) {
    counts.valid_steps += static_cast<double>(kValidSteps[static_cast<std::size_t>(row)]);
  }
  return counts;
}

at::Tensor logits_of(const std::vector<int64_t>& rows, const at::Tensor& weights_KF) {
  const at::Tensor index = at::tensor(at::ArrayRef<int64_t>(rows), at::kLong);
  const at::Tensor features = wave({kRows, kSteps, kFeatures}, 0.4).index_select(0, index);
  return at::matmul(features, weights_KF.t());
}

using Partitioning = std::vector<std::vector<int64_t>>;  ///< rows of each rank

/// Rows rank, rank + V, …; unequal: the first rank gives all but one of its rows to the last; empty: all of them.
Partitioning partitioned(int world, const std::string& how) {
  Partitioning partitioning(static_cast<std::size_t>(world));
  for (int64_t row = 0; row < kRows; ++row) {
    partitioning[static_cast<std::size_t>(row % world)].push_back(row);
  }
  const std::size_t stays = how == "unequal" ? 1 : 0;
  while (how != "equal" && partitioning.front().size() > stays) {
    partitioning.back().push_back(partitioning.front().back());
    partitioning.front().pop_back();
  }
  return partitioning;
}

struct Objective {
  double loss = 0;
  at::Tensor gradient;
};

at::Tensor rank_loss(Comm& comm, const Denominator& denominator, const std::vector<int64_t>& rows,
                     int64_t micro_steps, const at::Tensor& weights) {
  const LossCounts own = counts_of(rows), all = counts_of_all_ranks(comm, denominator, own);
  at::Tensor loss = at::zeros({}, at::kDouble);
  const auto count = static_cast<int64_t>(rows.size());
  for (int64_t micro = 0; micro < micro_steps; ++micro) {
    const std::vector<int64_t> part(rows.begin() + micro * count / micro_steps,
                                    rows.begin() + (micro + 1) * count / micro_steps);
    const at::Tensor sums =
        cross_entropy_row_sums({logits_of(part, weights), targets_of(part), valid_of(part), 0.1});
    loss = loss + sums.sum() * loss_weight(denominator, {counts_of(part), own, all, comm.world_size(), micro_steps});
  }
  return loss;
}

Objective of_ranks(const Denominator& denominator, const Partitioning& partitioning, int64_t micro_steps) {
  const int world = static_cast<int>(partitioning.size());
  EmulatedWorld emulated(world, 20);
  std::vector<Objective> ranks(partitioning.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      const std::unique_ptr<Comm> comm = world == 1 ? make_solo_comm() : emulated.comm(rank);
      const at::Tensor weights = wave({kClasses, kFeatures}, 2).requires_grad_(true);
      const auto at = static_cast<std::size_t>(rank);
      const at::Tensor loss = rank_loss(*comm, denominator, partitioning[at], micro_steps, weights);
      loss.backward();
      ranks[at] = {loss.item<double>(), weights.grad()};
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  Objective mean{0, at::zeros({kClasses, kFeatures}, at::kDouble)};
  for (const Objective& rank : ranks) {
    mean.loss += rank.loss / world;
    mean.gradient += rank.gradient / world;
  }
  return mean;
}

/// The objective as it is meant, from the definition alone: each row's sum over its denominator.
Objective in_one_process(const Denominator& denominator, const Partitioning& partitioning, int64_t micro_steps) {
  const at::Tensor weights = wave({kClasses, kFeatures}, 2).requires_grad_(true);
  const at::Tensor sums = cross_entropy_row_sums_by_definition(
      {logits_of(all_rows(), weights), targets_of(all_rows()), valid_of(all_rows()), 0.1});
  const auto divisor = [&](const std::vector<int64_t>& rows) {
    const LossCounts counts = counts_of(rows);
    return denominator.over == DenominatorOver::rows          ? counts.rows
           : denominator.over == DenominatorOver::valid_steps ? counts.valid_steps
                                                              : denominator.constant;
  };
  const auto world = static_cast<double>(partitioning.size());
  at::Tensor loss = at::zeros({}, at::kDouble);
  const auto add = [&](const std::vector<int64_t>& rows, double by) {
    for (const int64_t row : rows) {
      loss = loss + sums[row] / (by > 0 ? by : 1);
    }
  };
  for (const std::vector<int64_t>& rank : partitioning) {
    const auto count = static_cast<int64_t>(rank.size());
    if (denominator.scope == DenominatorScope::global) {
      add(rank, divisor(all_rows()));
    } else if (denominator.scope == DenominatorScope::local) {
      add(rank, divisor(rank) * world);
    } else {
      for (int64_t micro = 0; micro < micro_steps; ++micro) {
        const std::vector<int64_t> part(rank.begin() + micro * count / micro_steps,
                                        rank.begin() + (micro + 1) * count / micro_steps);
        add(part, divisor(part) * world * static_cast<double>(micro_steps));
      }
    }
  }
  loss.backward();
  return {loss.item<double>(), weights.grad()};
}

const std::vector<Denominator> kDenominators = [] {
  std::vector<Denominator> all;
  for (const auto over : {DenominatorOver::valid_steps, DenominatorOver::rows, DenominatorOver::constant}) {
    for (const auto scope : {DenominatorScope::global, DenominatorScope::local, DenominatorScope::micro}) {
      all.push_back({over, scope, over == DenominatorOver::constant ? 30.0 : 0.0});
    }
  }
  return all;
}();

std::string named(const Denominator& denominator) {
  return "over " + std::to_string(static_cast<int>(denominator.over)) + ", scope " +
         std::to_string(static_cast<int>(denominator.scope));
}

TEST(CrossEntropy, TheMeanOverRanksIsTheObjectiveUnderEveryPartitioning) {
  for (const Denominator& denominator : kDenominators) {
    for (const int world : {1, 2, 3, 4, 8}) {
      for (const char* how : {"equal", "unequal", "one_empty"}) {
        for (const int64_t micro_steps : {1, 3}) {
          const Partitioning partitioning = world == 1 ? partitioned(1, "equal") : partitioned(world, how);
          const Objective expected = in_one_process(denominator, partitioning, micro_steps);
          const Objective found = of_ranks(denominator, partitioning, micro_steps);
          const std::string what = named(denominator) + ", " + std::to_string(world) + " ranks, " + how + ", " +
                                   std::to_string(micro_steps) + " micro-steps";
          EXPECT_NEAR(found.loss, expected.loss, 1e-13 * std::max(1.0, expected.loss)) << what;
          EXPECT_LT((found.gradient - expected.gradient).norm().item<double>(),
                    1e-13 * std::max(1.0, expected.gradient.norm().item<double>()))
              << what;
        }
      }
    }
  }
}

TEST(CrossEntropy, OnlyGlobalDenominatorsAreTheSameUnderEveryLayout) {
  for (const Denominator& denominator : kDenominators) {
    const Objective one = of_ranks(denominator, partitioned(1, "equal"), 1);
    const bool global = denominator.scope == DenominatorScope::global;
    for (const int world : {3, 4}) {
      for (const int64_t micro_steps : {1, 2}) {
        const Objective found = of_ranks(denominator, partitioned(world, "unequal"), micro_steps);
        const double apart =
            (found.gradient - one.gradient).norm().item<double>() / one.gradient.norm().item<double>();
        if (global) {
          EXPECT_LT(apart, 1e-13) << named(denominator);
        } else {
          EXPECT_GT(apart, 1e-2) << named(denominator) << ": a mean of means of unequal counts";
        }
      }
    }
  }
}

/// Counts what is asked of the Comm of one rank of so many.
class CountingComm : public Comm {
 public:
  explicit CountingComm(int ranks) : ranks_(ranks) {}
  int rank() const override { return 0; }
  int world_size() const override { return ranks_; }
  void all_reduce_sum(at::Tensor, std::string_view tag) override { tags.emplace_back(tag); }
  at::Tensor all_gather(const at::Tensor& tensor, std::string_view) override { return tensor.unsqueeze(0); }
  void broadcast(at::Tensor, int, std::string_view) override {}
  void barrier(std::string_view) override {}
  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>&, const std::vector<std::string>&,
                                                    const ReducerOptions&) override {
    return nullptr;
  }
  std::vector<std::string> tags;

 private:
  int ranks_;
};

TEST(CrossEntropy, CountsMoveOnceAndOnlyWhereTheDenominatorIsGlobal) {
  for (const Denominator& denominator : kDenominators) {
    CountingComm alone(1), comm(2);
    counts_of_all_ranks(alone, denominator, {2, 9});
    EXPECT_TRUE(alone.tags.empty()) << named(denominator);
    counts_of_all_ranks(comm, denominator, {2, 9});
    std::vector<std::string> expected;
    if (denominator.scope == DenominatorScope::global && denominator.over != DenominatorOver::constant) {
      expected = {denominator.over == DenominatorOver::rows ? "loss.rows" : "loss.valid_steps"};
    }
    EXPECT_EQ(comm.tags, expected) << named(denominator);
  }
}

TEST(CrossEntropy, NothingToCountWeighsNothing) {
  EXPECT_EQ(loss_weight({DenominatorOver::rows, DenominatorScope::local}, {}), 0.0);
  EXPECT_EQ(loss_weight({DenominatorOver::valid_steps, DenominatorScope::micro}, {}), 0.0);
}

}  // namespace
}  // namespace lockstep
