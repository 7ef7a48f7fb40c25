// Losses that ranks make of rows, told from what the function gives for single rows and pairs.

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "harness/verdict/causes/rules.h"
#include "harness/verdict/evidence/replays.h"

namespace lockstep {
namespace {

using Ids = std::vector<int64_t>;
using LossOf = std::function<double(const Ids&)>;

const Ids kBatch = {7, 3, 11, 5, 2, 13, 17, 19};
const std::vector<Ids> kUnequal = {{7, 3, 11}, {5, 2, 13, 17, 19}}, kEqual = {{7, 3, 11, 5}, {2, 13, 17, 19}};
std::vector<Ids> rows_by_rank = kUnequal;

/// Row i loses this, and counts that many tokens.
double loss_of_row(int64_t id) { return 1 + std::sin(static_cast<double>(id)); }
double tokens_of(int64_t id) { return static_cast<double>(std::min<int64_t>(id % 7 + 1, 5)); }

double weighted_sum(const Ids& ids) {
  double sum = 0;
  for (const int64_t id : ids) sum += tokens_of(id) * loss_of_row(id);
  return sum;
}

double tokens(const Ids& ids) {
  double sum = 0;
  for (const int64_t id : ids) sum += tokens_of(id);
  return sum;
}

double mean_by_tokens(const Ids& ids) { return weighted_sum(ids) / tokens(ids); }

double mean_by_rows(const Ids& ids) {
  double sum = 0;
  for (const int64_t id : ids) sum += loss_of_row(id);
  return sum / static_cast<double>(ids.size());
}

/// A loss that contrasts rows: of one row it is 0.
double contrastive(const Ids& ids) {
  double sum = 0;
  for (const int64_t row : ids) {
    double all = 0;
    for (const int64_t column : ids) all += std::exp(std::cos(static_cast<double>(row * column)) - (row == column ? 0 : 1));
    sum += std::log(all) - std::cos(static_cast<double>(row * row));
  }
  return sum / static_cast<double>(ids.size());
}

/// What rows lose depends on the deviation of all.
double normalised(const Ids& ids) {
  const double mean = mean_by_rows(ids);
  double squares = 0;
  for (const int64_t id : ids) squares += std::pow(loss_of_row(id) - mean, 2);
  return mean + std::sqrt(squares / static_cast<double>(ids.size()));
}

Measured measured(const LossOf& loss, double own) {
  Measured found{.own = own, .together = loss(kBatch), .singles = {}, .first = kBatch.front(), .pairs = {}, .epsilon = 2.2e-16};
  for (const int64_t id : kBatch) {
    found.singles[id] = loss({id});
    if (id != kBatch.front()) found.pairs[id] = loss({kBatch.front(), id});
  }
  return found;
}

/// All rows lose the same where the gradient alone is told.
bool as_gradient = false;

MeasuredRows in_channel(const Ids& own, const Measured& measured_rows) {
  if (!as_gradient) return {.own_ids = own, .loss = measured_rows, .slope = {}};
  return {.own_ids = own, .loss = measured([](const Ids&) { return 0.7; }, 0.7), .slope = measured_rows};
}

/// The cause for ranks that hold rows_by_rank and have lost this of them, with that function.
Cause cause_of(const LossOf& reference, const LossOf& cell, const std::function<double(std::size_t)>& own, Phase phase = Phase::loss, int64_t micro_steps = 1,
               const LossOf& of_rank_1 = {}) {
  CauseInputs inputs;
  inputs.difference.phase = phase;
  inputs.difference.divergence.step = 0;
  inputs.cell_facts.accumulation = micro_steps;
  inputs.rows = RowsApart{.step = 0, .reference = {in_channel(kBatch, measured(reference, reference(kBatch)))}, .cell = {}};
  for (std::size_t rank = 0; rank < rows_by_rank.size(); ++rank) inputs.rows->cell.push_back(in_channel(rows_by_rank[rank], measured(rank == 1 && of_rank_1 ? of_rank_1 : cell, own(rank))));
  return *name_cause(inputs);
}

std::string code_of(const LossOf& reference, const LossOf& cell, const std::function<double(std::size_t)>& own, Phase phase = Phase::loss, int64_t micro_steps = 1) {
  return cause_of(reference, cell, own, phase, micro_steps).code;
}

double by_world(std::size_t rank) { return 2 * weighted_sum(rows_by_rank[rank]) / tokens(kBatch); }

TEST(RowsApart, TellsWeightsOfRowsFromPairs) {
  const TakenApart apart = taken_apart(measured(mean_by_tokens, 0));
  ASSERT_TRUE(apart.rows);
  EXPECT_FALSE(apart.is_coupled);
  EXPECT_FALSE(apart.rows->is_sum);
  for (const int64_t id : kBatch) EXPECT_NEAR(apart.rows->rows.at(id).weight, tokens_of(id) / tokens_of(kBatch.front()), 1e-9) << id;
}

TEST(RowsApart, TellsASum) {
  const TakenApart apart = taken_apart(measured([](const Ids& ids) { return weighted_sum(ids) / 24; }, 0));
  ASSERT_TRUE(apart.rows);
  EXPECT_TRUE(apart.rows->is_sum);
}

TEST(RowsApart, TellsThatRowsAreCoupled) {
  for (const LossOf& loss : {LossOf(contrastive), LossOf(normalised)}) {
    const TakenApart apart = taken_apart(measured(loss, 0));
    EXPECT_FALSE(apart.rows);
    EXPECT_TRUE(apart.is_coupled);
  }
}

TEST(RowsApart, ClaimsNothingOfRowsThatAllLoseTheSame) {
  const TakenApart apart = taken_apart(measured([](const Ids&) { return 0.7; }, 0));
  EXPECT_FALSE(apart.rows);
  EXPECT_FALSE(apart.is_coupled);
}

TEST(RowsApart, ClaimsNothingOfAFunctionThatTakesNoSingleRow) {
  Measured rows = measured(contrastive, 0);
  rows.singles.clear();
  rows.pairs.clear();
  const TakenApart apart = taken_apart(rows);
  EXPECT_FALSE(apart.rows);
  EXPECT_FALSE(apart.is_coupled);
}

TEST(RowsApart, NameAMeanOfMeans) {
  const auto own_mean = [](std::size_t rank) { return mean_by_tokens(rows_by_rank[rank]); };
  for (const Phase phase : {Phase::loss, Phase::local_gradients, Phase::reduced_gradients}) {
    EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, own_mean, phase), "mean-of-means");
  }
  // The reference divides by a constant, the ranks by their own numbers of rows, and they are summed.
  const LossOf over_all = [](const Ids& ids) { return mean_by_rows(ids) * static_cast<double>(ids.size()) / 8; };
  EXPECT_EQ(code_of(over_all, mean_by_rows, [](std::size_t rank) { return mean_by_rows(rows_by_rank[rank]) / 2; }), "mean-of-means");
}

TEST(RowsApart, AreToldFromGradientsWhereAllRowsLoseTheSame) {
  as_gradient = true;
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, [](std::size_t rank) { return mean_by_tokens(rows_by_rank[rank]); }), "mean-of-means");
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, by_world), "unexplained");
  // Gradients that the function has reduced itself are not the ranks' own.
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, [](std::size_t) { return mean_by_tokens(rows_by_rank[0]); }), "unexplained");
  as_gradient = false;
}

TEST(RowsApart, AreSilentWhereRanksCountRowsAlike) {
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, by_world), "unexplained");
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, [](std::size_t rank) { return 3 * by_world(rank); }), "unexplained");
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, [](std::size_t rank) { return mean_by_tokens(rows_by_rank[rank]) * (rank == 1 ? 1.01 : 1); }), "unexplained");
}

TEST(RowsApart, NameMicroStepsThatCountAlike) {
  const auto sum_of_means = [](std::size_t rank) {
    const Ids& ids = rows_by_rank[rank];
    const auto middle = ids.begin() + static_cast<std::ptrdiff_t>(ids.size() / 2);
    return mean_by_tokens({ids.begin(), middle}) + mean_by_tokens({middle, ids.end()});
  };
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, [&](std::size_t rank) { return sum_of_means(rank) / 2; }, Phase::loss, 2), "micro-steps-weighted-alike");
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, sum_of_means, Phase::loss, 2), "accumulation-not-scaled");
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, by_world, Phase::loss, 2), "unexplained");
}

TEST(RowsApart, NameRowsThatAreLeftOut) {
  const auto without_last_of = [](std::size_t wrong) {
    return [=](std::size_t rank) {
      const Ids& ids = rows_by_rank[rank];
      return rank == wrong ? 2 * weighted_sum({ids.begin(), ids.end() - 1}) / tokens(kBatch) : by_world(rank);
    };
  };
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, without_last_of(1)), "rows-left-out");
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, without_last_of(2)), "unexplained");
}

TEST(RowsApart, NameWhatIsTakenOverOwnRows) {
  // Ranks that hold more rows and do not count more look alike.
  EXPECT_EQ(code_of(normalised, normalised, [](std::size_t rank) { return normalised(rows_by_rank[rank]); }), "unexplained");
  rows_by_rank = kEqual;
  EXPECT_EQ(code_of(contrastive, contrastive, [](std::size_t rank) { return contrastive(rows_by_rank[rank]); }), "local-negatives");
  EXPECT_EQ(code_of(normalised, normalised, [](std::size_t rank) { return normalised(rows_by_rank[rank]); }), "local-statistics");
  const LossOf twice = [](const Ids& ids) { return 2 * normalised(ids); };
  EXPECT_EQ(code_of(normalised, twice, [&](std::size_t rank) { return twice(rows_by_rank[rank]); }), "local-statistics");
  rows_by_rank = kUnequal;
}

TEST(RowsApart, AreSilentOfACoupledLossThatIsRightOrOtherwiseWrong) {
  EXPECT_EQ(code_of(normalised, normalised, [](std::size_t) { return normalised(kBatch); }), "unexplained");
  // Of equal rows on all ranks a gather has each candidate twice.
  const LossOf gathered = [](const Ids& ids) { return contrastive(ids) + std::log(2.0); };
  EXPECT_EQ(code_of(contrastive, gathered, [](std::size_t rank) { return contrastive(rows_by_rank[rank]); }), "unexplained");
}

TEST(RowsApart, TellWhoseFunctionIsAnother) {
  const LossOf other = [](const Ids& ids) { return mean_by_tokens(ids) + 0.1; };
  const auto own = [](std::size_t rank) { return 1.5 * by_world(rank) + static_cast<double>(rank); };
  const Cause cause = cause_of(mean_by_tokens, mean_by_tokens, own, Phase::loss, 1, other);
  EXPECT_EQ(cause.code, "unexplained");
  EXPECT_NE(cause.evidence.find("and another one on rank 1"), std::string::npos) << cause.evidence;
  // Nothing is known of gradients.
  EXPECT_EQ(cause_of(mean_by_tokens, mean_by_tokens, own).evidence.find("of the same rows"), std::string::npos);
  EXPECT_NE(cause_of(mean_by_tokens, other, own).evidence.find("every rank's function gives another loss"), std::string::npos);
}

TEST(RowsApart, NameAMaskThatIsIgnored) {
  // Rows of 5 tokens are whole.
  const LossOf unmasked = [](const Ids& ids) {
    double sum = 0;
    for (const int64_t id : ids) sum += loss_of_row(id) + (5 - tokens_of(id)) * 0.3;
    return sum / static_cast<double>(ids.size());
  };
  const auto own = [&](std::size_t rank) { return unmasked(rows_by_rank[rank]); };
  EXPECT_EQ(code_of(mean_by_tokens, unmasked, own), "mask-ignored");
  // The sum has the padding too, and the divisor has not.
  const LossOf unmasked_sum = [](const Ids& ids) {
    double sum = 0;
    for (const int64_t id : ids) sum += tokens_of(id) * loss_of_row(id) + (5 - tokens_of(id)) * 0.3;
    return sum / tokens(ids);
  };
  EXPECT_EQ(code_of(mean_by_tokens, unmasked_sum, own), "mask-ignored");
  const LossOf other = [&](const Ids& ids) { return unmasked(ids) + 0.1; };
  EXPECT_EQ(code_of(mean_by_tokens, other, own), "unexplained");
}

}  // namespace
}  // namespace lockstep
