#include <ATen/ATen.h>
#include <boost/multiprecision/cpp_int.hpp>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "harness/plan/config/canonical.h"
#include "harness/trainers/core/exact_sum.h"
#include "harness/trainers/core/step.h"
#include "harness/trainers/core/update.h"

namespace lockstep {
namespace {

using Integer = boost::multiprecision::cpp_int;

/// By arithmetic on the integers that floats are multiples of: an oracle that shares nothing with the sum but the question.
template <typename Float>
Float by_integers(const std::vector<Float>& values) {
  constexpr int kDigits = std::numeric_limits<Float>::digits, kLowest = std::numeric_limits<Float>::min_exponent - kDigits;
  Integer sum = 0;
  for (const Float value : values) {
    int exponent = 0;
    const Integer mantissa = static_cast<int64_t>(std::ldexp(std::frexp(value, &exponent), kDigits));
    const int shift = exponent - kDigits - kLowest;  // below 0: of a denormal number, which ends in as many zeros
    sum += shift >= 0 ? Integer(mantissa << shift) : Integer(mantissa / (Integer(1) << -shift));
  }
  if (sum == 0) return 0;
  // The nearest number with so many digits, ties to even.
  const Integer size = abs(sum);
  const int low = std::max(0, static_cast<int>(msb(size)) - kDigits + 1);
  Integer kept = size >> low;
  const Integer twice_the_rest = (size - (kept << low)) * 2, unit = Integer(1) << low;
  if (low > 0 && (twice_the_rest > unit || (twice_the_rest == unit && bit_test(kept, 0)))) ++kept;
  const double rounded = std::ldexp(kept.convert_to<double>(), low + kLowest);
  return static_cast<Float>(sum < 0 ? -rounded : rounded);
}

template <typename Float>
at::Tensor one(Float value) {
  return at::full({1}, static_cast<double>(value), sizeof(Float) == 4 ? at::kFloat : at::kDouble);
}

template <typename Float>
Float summed(const std::vector<Float>& values) {
  ExactSum sum(1, sizeof(Float) == 4 ? at::kFloat : at::kDouble);
  for (const Float value : values) sum.add(0, one(value));
  at::Tensor result = one(Float{0});
  sum.round_to(0, result);
  return *result.const_data_ptr<Float>();
}

/// Any bit pattern that is a finite number: exponents over the whole range.
template <typename Float, typename Bits>
std::vector<Float> any_numbers(std::mt19937_64& engine, int count) {
  std::vector<Float> values;
  while (static_cast<int>(values.size()) < count) {
    const auto value = std::bit_cast<Float>(static_cast<Bits>(engine()));
    if (std::isfinite(value)) values.push_back(value);
    // What nearly cancels shows digits that a carry got wrong.
    if (values.size() % 5 == 4) values.push_back(-values[engine() % values.size()]);
  }
  return values;
}

TEST(ExactSum, IsTheNearestNumberToTheSumOfAnyFloats) {
  std::mt19937_64 engine(1);
  for (int trial = 0; trial < 3000; ++trial) {
    const std::vector<float> values = any_numbers<float, uint32_t>(engine, 1 + static_cast<int>(engine() % 40));
    const float expected = by_integers(values), found = summed(values);
    ASSERT_EQ(std::bit_cast<uint32_t>(expected), std::bit_cast<uint32_t>(found)) << "trial " << trial;
  }
}

TEST(ExactSum, IsTheNearestNumberToTheSumOfAnyDoubles) {
  std::mt19937_64 engine(2);
  for (int trial = 0; trial < 1000; ++trial) {
    const std::vector<double> values = any_numbers<double, uint64_t>(engine, 1 + static_cast<int>(engine() % 20));
    ASSERT_EQ(std::bit_cast<uint64_t>(by_integers(values)), std::bit_cast<uint64_t>(summed(values))) << "trial " << trial;
  }
}

TEST(ExactSum, RoundsTiesToEvenAndLooksAtEveryBitBelow) {
  const float unit = std::ldexp(1.0F, -23), half = std::ldexp(1.0F, -24), least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(summed<float>({1.0F, half}), 1.0F);
  EXPECT_EQ(summed<float>({1.0F + unit, half}), 1.0F + 2 * unit);
  EXPECT_EQ(summed<float>({1.0F, half, least}), 1.0F + unit);
  EXPECT_EQ(summed<float>({1.0F, half, -least}), 1.0F);
  EXPECT_EQ(summed<float>({-1.0F, -half, -least}), -1.0F - unit);
  EXPECT_EQ(summed<float>({1e30F, 1.0F, -1e30F}), 1.0F);
}

TEST(ExactSum, OfZerosIsPositiveZeroWhateverTheirSigns) {
  EXPECT_FALSE(std::signbit(summed<float>({-0.0F, -0.0F})));
  EXPECT_FALSE(std::signbit(summed<float>({1.0F, -1.0F})));
  EXPECT_EQ(summed<float>({}), 0.0F);
}

TEST(ExactSum, BeyondTheLargestNumberIsInfinite) {
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(summed<float>({most, most}), std::numeric_limits<float>::infinity());
  EXPECT_EQ(summed<float>({most, most, -most}), most);
}

/// What the sums of ranks become when all have exchanged them.
at::Tensor exchanged(std::vector<ExactSum>& ranks) {
  const int64_t elements = ranks.front().elements();
  std::vector<at::Tensor> descriptions;
  std::vector<const int64_t*> pointers;
  for (ExactSum& rank : ranks) descriptions.push_back(rank.description());
  for (const at::Tensor& description : descriptions) pointers.push_back(description.const_data_ptr<int64_t>());
  const ExactForm form = ExactSum::form_of(pointers, elements);
  const int64_t size = ExactSum::size_of(form, elements);
  at::Tensor sums = at::zeros({size}, at::kLong), one = at::empty({size}, at::kLong);
  for (ExactSum& rank : ranks) {
    rank.write(form, one.mutable_data_ptr<int64_t>());
    sums.add_(one);
  }
  ranks.front().read(form, sums);
  at::Tensor rounded = at::zeros({elements});
  ranks.front().round_to(0, rounded);
  return rounded;
}

TEST(ExactSum, OfRanksIsTheSumOfTheirsWhicheverDigitsTheyUse) {
  std::mt19937_64 engine(3);
  const std::vector<float> values = any_numbers<float, uint32_t>(engine, 240);
  ExactSum whole(10, at::kFloat);
  std::vector<ExactSum> ranks;
  for (int r = 0; r < 3; ++r) ranks.emplace_back(10, at::kFloat);
  for (std::size_t k = 0; k < values.size(); ++k) {
    whole.add(static_cast<int64_t>(k % 10), one(values[k]));
    ranks[engine() % 3].add(static_cast<int64_t>(k % 10), one(values[k]));
  }
  at::Tensor expected = at::zeros({10});
  whole.round_to(0, expected);
  EXPECT_TRUE(at::equal(exchanged(ranks), expected));
}

/// Rows as gradients are: of like size within a row, rows of unlike size, with a few numbers far from the others.
std::vector<at::Tensor> rows_like_gradients(std::mt19937_64& engine, int64_t elements, int rows, int spread) {
  std::normal_distribution<float> normal;
  std::vector<at::Tensor> all;
  for (int row = 0; row < rows; ++row) {
    const int of_row = static_cast<int>(engine() % static_cast<uint64_t>(2 * spread + 1)) - spread - 20;
    at::Tensor values = at::empty({elements});
    float* out = values.mutable_data_ptr<float>();
    for (int64_t i = 0; i < elements; ++i) {
      out[i] = std::ldexp(normal(engine), of_row);
      if (engine() % 50 == 0) out[i] = 0.0F;
      if (engine() % 300 == 0) out[i] = std::numeric_limits<float>::denorm_min() * static_cast<float>(engine() % 99);
      if (engine() % 3000 == 0) out[i] = std::ldexp(normal(engine), static_cast<int>(engine() % 240) - 120);
      if (row > 0 && engine() % 7 == 0) out[i] = -all[engine() % all.size()].const_data_ptr<float>()[i];
    }
    all.push_back(values);
  }
  return all;
}

TEST(ExactSum, OfRowsOfAnySizeIsThatOfIntegersOnOneRankAndOnSeveral) {
  std::mt19937_64 engine(4);
  const int64_t elements = 2 * ExactSum::kBlock + 77;
  for (int trial = 0; trial < 24; ++trial) {
    const int rows = trial % 3 == 2 ? 200 : 1 + static_cast<int>(engine() % 24);  // 200: more than integers take
    const auto all = rows_like_gradients(engine, elements, rows, trial % 4 * 12);
    ExactSum whole(elements, at::kFloat);
    std::vector<ExactSum> ranks;
    for (int r = 0; r < 5; ++r) ranks.emplace_back(elements, at::kFloat);
    for (const at::Tensor& row : all) {
      whole.add(0, row);
      ranks[engine() % 4].add(0, row);  // the fifth one has no row
    }
    at::Tensor found = at::zeros({elements});
    whole.round_to(0, found);
    for (int64_t i = 0; i < elements; ++i) {
      std::vector<float> values;
      for (const at::Tensor& row : all) values.push_back(row.const_data_ptr<float>()[i]);
      ASSERT_EQ(std::bit_cast<uint32_t>(by_integers(values)), std::bit_cast<uint32_t>(found.const_data_ptr<float>()[i]))
          << "trial " << trial << ", element " << i;
    }
    EXPECT_TRUE(at::equal(exchanged(ranks), found)) << "trial " << trial;
  }
}

TEST(ExactSum, GoesOnAfterItWasRoundedAndExchanged) {
  std::vector<ExactSum> ranks;
  for (int r = 0; r < 2; ++r) ranks.emplace_back(3, at::kFloat);
  ranks[0].add(0, at::full({3}, 0.75));
  EXPECT_EQ(ranks[0].rounded(1), 0.75);
  ranks[1].add(0, at::full({3}, -0.5));
  ranks[0].add(0, at::full({3}, 1e-30));
  EXPECT_TRUE(at::equal(exchanged(ranks), at::full({3}, 0.25)));
  ranks[0].add(0, at::full({3}, -0.25));
  EXPECT_EQ(ranks[0].rounded(2), static_cast<double>(1e-30F));
}

TEST(ExactSum, SendsOneIntegerForANumberOfLikeSize) {
  std::vector<ExactSum> ranks;
  for (int r = 0; r < 2; ++r) ranks.emplace_back(2 * ExactSum::kBlock, at::kFloat);
  for (ExactSum& rank : ranks) rank.add(0, at::full({2 * ExactSum::kBlock}, 0.1));
  const auto size = [&] {
    const at::Tensor a = ranks[0].description(), b = ranks[1].description();
    const int64_t* of_ranks[] = {a.const_data_ptr<int64_t>(), b.const_data_ptr<int64_t>()};
    return ExactSum::size_of(ExactSum::form_of(of_ranks, ranks[0].elements()), ranks[0].elements());
  };
  EXPECT_EQ(size(), 2 * ExactSum::kBlock);
  ranks[1].add(1, 1e-20);  // its block alone needs digits
  EXPECT_GT(size(), 3 * ExactSum::kBlock);
  EXPECT_LE(size(), 6 * ExactSum::kBlock);
}

TEST(ExactSum, HoldsFourMillionNumbersOfOneSign) {
  ExactSum sum(1, at::kFloat);
  const at::Tensor value = one(16777215.0F);
  for (int k = 0; k < (1 << 22); ++k) sum.add(0, value);
  EXPECT_EQ(sum.rounded(0), std::ldexp(16777215.0, 22));
}

TEST(ExactSum, BeginsAnewWhenItIsCleared) {
  ExactSum sum(2, at::kFloat);
  sum.add(0, at::ones({2}));
  sum.zero(0, 1);
  EXPECT_EQ(sum.rounded(0), 0.0);
  EXPECT_EQ(sum.rounded(1), 1.0);
  sum.clear();
  EXPECT_EQ(sum.rounded(1), 0.0);
}

TEST(AllFinite, SeesOneValueThatIsNone) {
  at::Tensor values = at::ones({33});
  EXPECT_TRUE(all_finite(values));
  values[17] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(all_finite(values));
  EXPECT_FALSE(all_finite(at::full({1}, -std::numeric_limits<double>::infinity(), at::kDouble)));
}

// Gradients of a row are those of PyTorch's own backward pass, bit for bit.

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
