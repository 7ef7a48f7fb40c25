#include "harness/trainers/core/update.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/verdict/config/seeds.h"

namespace lockstep {
namespace {

RunConfig config_with(Perturbation perturb) {
  RunConfig config;
  config.layout = {3, 8};
  config.seed = 4;
  config.perturb = perturb;
  return config;
}

/// Rows that name their step, rank and place.
std::vector<int64_t> partitioned(int64_t step, int rank) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < 8; ++row) {
    rows.push_back(1000 * step + 100 * rank + row);
  }
  return rows;
}

std::vector<int64_t> sorted(std::vector<int64_t> rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST(Perturbed, RowsOfEachMicroStepComeInAnotherOrderAndAreTheSame) {
  RunConfig config = config_with(Perturbation::row_order);
  config.accumulation = 2;
  const RowsOf rows_of = perturbed(partitioned, config);
  for (int64_t step = 0; step < 20; ++step) {
    for (int rank = 0; rank < 3; ++rank) {
      const std::vector<int64_t> rows = rows_of(step, rank), right = partitioned(step, rank);
      EXPECT_NE(rows, right);
      EXPECT_EQ(rows, rows_of(step, rank)) << "keyed, not drawn";
      for (const auto& [begin, end] : {std::pair{0, 4}, {4, 8}}) {
        EXPECT_EQ(sorted({rows.begin() + begin, rows.begin() + end}),
                  std::vector<int64_t>(right.begin() + begin, right.begin() + end));
      }
    }
  }
  EXPECT_NE(rows_of(0, 0)[0] % 100, rows_of(1, 0)[0] % 100) << "each step has its own order";
}

TEST(Perturbed, EvenTwoRowsChangePlaces) {
  RunConfig config = config_with(Perturbation::row_order);
  const RowsOf rows_of = perturbed([](int64_t, int) { return std::vector<int64_t>{7, 3}; }, config);
  for (int64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(rows_of(step, 0), (std::vector<int64_t>{3, 7}));
  }
}

TEST(Perturbed, OtherPerturbationsLeaveTheRowsAlone) {
  for (const Perturbation perturb : {Perturbation::none, Perturbation::random_draws, Perturbation::epsilon}) {
    EXPECT_EQ(perturbed(partitioned, config_with(perturb))(3, 1), partitioned(3, 1));
  }
}

TEST(StreamSeed, IsTheRunsOwnButForOtherDraws) {
  for (const Perturbation perturb : {Perturbation::none, Perturbation::row_order, Perturbation::epsilon}) {
    EXPECT_EQ(stream_seed(config_with(perturb)), 4);
  }
  const int64_t other = stream_seed(config_with(Perturbation::random_draws));
  EXPECT_NE(other, 4);
  RunConfig next = config_with(Perturbation::random_draws);
  next.seed = 5;
  EXPECT_NE(stream_seed(next), other);
}

TEST(MoveByOneUnit, EveryElementTakesOneOfItsNeighbours) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    ParameterList parameters, again, right;
    for (ParameterList* list : {&parameters, &again, &right}) {
      list->add("a", at::linspace(-2, 2, 101).to(type));
      list->add("b", at::full({}, 0.5, at::TensorOptions(type)));
    }
    move_by_one_unit(parameters, 9);
    move_by_one_unit(again, 9);
    EXPECT_TRUE(at::equal(parameters.tensors[0], again.tensors[0])) << "equal on all ranks";
    int up = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      const at::Tensor from = right.tensors[i].detach(), to = parameters.tensors[i].detach();
      const double infinity = std::numeric_limits<double>::infinity();
      const at::Tensor above = at::nextafter(from, at::full_like(from, infinity));
      const at::Tensor below = at::nextafter(from, at::full_like(from, -infinity));
      EXPECT_TRUE((to == above).logical_or(to == below).all().item<bool>());
      up += static_cast<int>((to == above).sum().item<int64_t>());
    }
    EXPECT_GT(up, 30);
    EXPECT_LT(up, 72);
    move_by_one_unit(right, 10);
    EXPECT_FALSE(at::equal(parameters.tensors[0], right.tensors[0])) << "keyed by the seed";
  }
}

}  // namespace
}  // namespace lockstep
