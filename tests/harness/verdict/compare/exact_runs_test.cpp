// Free runs in exact arithmetic, compared with each other row by row from what their traces say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "harness/verdict/causes/name_cause.h"
#include "harness/verdict/trace/writer.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kSteps = 4, kRows = 6;

/// What a rank says of one row.
struct ToyRow {
  int64_t position = 0, sample = 0, inputs = 0, scores = 0, gradient = 0;
  float loss = 0;
};

struct ToyStep {
  int64_t step = 0;
  int rank = 0;
  std::vector<ToyRow> rows;
  std::vector<float> reduced{0.5F, 0.25F}, parameters{1.0F, 2.0F};
};

using Fault = std::function<void(ToyStep&)>;

ToyRow row_at(int64_t step, int64_t position) {
  const int64_t key = step * 100 + position;
  return {position, 10 + position, key + 1000, key + 2000, key + 3000, 0.5F + static_cast<float>(key)};
}

void write_integers(TraceWriter& trace, const char* name, const std::vector<int64_t>& values,
                    const std::vector<int64_t>& ids) {
  const std::vector<int64_t> shape{static_cast<int64_t>(values.size())};
  trace.tensor(Phase::loss, name, {values.data(), DType::int64, shape, {}}, Sharing::own, ids, Keep::whole);
}

void write_floats(TraceWriter& trace, Phase phase, const char* name, const std::vector<float>& values, Sharing sharing,
                  const std::vector<int64_t>& ids, Keep keep) {
  const std::vector<int64_t> shape{static_cast<int64_t>(values.size())};
  trace.tensor(phase, name, {values.data(), DType::float32, shape, {}}, sharing, ids, keep);
}

void write_step(TraceWriter& trace, const ToyStep& it) {
  std::vector<int64_t> ids, positions, inputs, scores, gradients;
  std::vector<float> losses;
  int64_t sum = 0;
  for (const ToyRow& row : it.rows) {
    ids.push_back(row.sample);
    positions.push_back(row.position);
    inputs.push_back(row.inputs);
    scores.push_back(row.scores);
    gradients.push_back(row.gradient);
    losses.push_back(row.loss);
    sum += row.gradient * 7;
  }
  trace.begin_step(it.step);
  trace.samples(ids);
  write_integers(trace, "row_positions", positions, ids);
  write_integers(trace, "row_inputs", inputs, ids);
  write_integers(trace, "row_scores", scores, ids);
  write_floats(trace, Phase::loss, "row_losses", losses, Sharing::own, ids, Keep::whole);
  write_integers(trace, "row_gradients", gradients, ids);
  write_integers(trace, "row_gradients_by_tensor", {sum}, {});
  write_floats(trace, Phase::reduced_gradients, "weight", it.reduced, Sharing::replicated, {}, Keep::by_level);
  write_floats(trace, Phase::parameters, "weight", it.parameters, Sharing::replicated, {}, Keep::by_level);
  trace.end_step();
}

class ExactRuns : public testing::Test {
 protected:
  std::string write_run(const std::string& name, int world_size, const Fault& fault = nullptr) {
    const std::string dir = folder_ / name;
    std::filesystem::create_directories(dir);
    for (int rank = 0; rank < world_size; ++rank) {
      TraceHeader header;
      header.config_hash = "hash";
      header.rank = rank;
      header.world_size = world_size;
      header.trainer = "energy";
      TraceWriter trace(dir + "/rank-" + std::to_string(rank) + ".trace", header);
      for (int64_t step = 0; step < kSteps; ++step) {
        ToyStep it{step, rank, {}, {0.5F, 0.25F}, {1.0F, 2.0F}};
        for (int64_t position = rank; position < kRows; position += world_size) it.rows.push_back(row_at(step, position));
        if (fault) fault(it);
        write_step(trace, it);
      }
      trace.finish();
    }
    return dir;
  }

  /// One process against three ranks.
  Mechanism with(const Fault& fault) {
    RunConfig reference, cell;
    reference.arithmetic = cell.arithmetic = Arithmetic::exact;
    reference.layout = {1, 6};
    cell.layout = {3, 2};
    return compare_runs({write_run("a", 1), write_run("b", 3, fault), {}, {}, &reference, &cell});
  }

  TempFolder folder_;
};

/// The fault in the row at place 4 of step 2, which rank 1 of 3 has.
Fault in_row_4(const std::function<void(ToyRow&)>& change) {
  return [change](ToyStep& it) {
    for (ToyRow& row : it.rows) {
      if (it.step == 2 && row.position == 4) change(row);
    }
  };
}

TEST_F(ExactRuns, OfAnyLayoutAreIdentical) {
  const Mechanism result = with(nullptr);
  EXPECT_EQ(result.verdict, VerdictKind::identical) << result.sentence;
  EXPECT_EQ(result.compared_steps, kSteps);
  EXPECT_FALSE(result.first_divergence.has_value());
}

TEST_F(ExactRuns, ADifferenceHasStepPhaseRowSampleAndRank) {
  struct Case {
    std::function<void(ToyRow&)> change;
    std::string phase, where;
  };
  const std::vector<Case> cases{
      {[](ToyRow& row) { ++row.inputs; }, "energies", "inputs"},
      {[](ToyRow& row) { ++row.scores; }, "energies", "energies"},
      {[](ToyRow& row) { row.loss += 1; }, "loss", "row_losses"},
      {[](ToyRow& row) { ++row.gradient; }, "local gradients", "weight"},
  };
  for (const Case& each : cases) {
    const Mechanism result = with(in_row_4(each.change));
    EXPECT_EQ(result.verdict, VerdictKind::divergent) << each.where;
    ASSERT_TRUE(result.first_divergence.has_value()) << each.where;
    const Divergence& first = *result.first_divergence;
    EXPECT_EQ(first.step, 2);
    EXPECT_EQ(first.phase, each.phase);
    EXPECT_EQ(first.where, each.where);
    EXPECT_EQ(first.rank, 1);
    EXPECT_EQ(first.row, 4);
    EXPECT_EQ(first.sample, 14);
    EXPECT_THAT(first.sentence, AllOf(HasSubstr("in row 4 (sample 14), which rank 1 had"), HasSubstr("step 2")));
  }
}

TEST_F(ExactRuns, WhatComesFirstInTheStepIsNamedAndFurtherRowsAreCounted) {
  const Mechanism result = with([](ToyStep& it) {
    for (ToyRow& row : it.rows) {
      if (it.step >= 1 && row.position >= 2) ++row.scores, ++row.gradient;
    }
    if (it.step >= 1) it.reduced[0] = 9;
  });
  ASSERT_TRUE(result.first_divergence.has_value());
  EXPECT_EQ(result.first_divergence->step, 1);
  EXPECT_EQ(result.first_divergence->where, "energies");
  EXPECT_EQ(result.first_divergence->row, 2);
  EXPECT_THAT(result.first_divergence->sentence, HasSubstr("so do 3 further rows"));
}

TEST_F(ExactRuns, ASampleAtAnotherPlaceAndALostRowAreNamed) {
  const Mechanism moved = with(in_row_4([](ToyRow& row) { row.sample = 99; }));
  ASSERT_TRUE(moved.first_divergence.has_value());
  EXPECT_EQ(moved.first_divergence->phase, "samples");
  EXPECT_EQ(moved.first_divergence->row, 4) << moved.first_divergence->sentence;
  EXPECT_EQ(moved.first_divergence->sample, 99);
  const Mechanism lost = with([](ToyStep& it) {
    if (it.step == 2 && it.rank == 2) it.rows.pop_back();
  });
  ASSERT_TRUE(lost.first_divergence.has_value());
  EXPECT_EQ(lost.first_divergence->step, 2);
  EXPECT_EQ(lost.first_divergence->phase, "samples");
}

TEST_F(ExactRuns, WhatAllRanksHoldAlikeIsComparedOnEachOfThem) {
  const Mechanism result = with([](ToyStep& it) {
    if (it.step == 3 && it.rank == 2) it.parameters[1] = 2.0000002F;
  });
  ASSERT_TRUE(result.first_divergence.has_value());
  EXPECT_EQ(result.first_divergence->step, 3);
  EXPECT_EQ(result.first_divergence->phase, "parameters");
  EXPECT_EQ(result.first_divergence->where, "weight");
  EXPECT_EQ(result.first_divergence->rank, 2);
  const Mechanism all = with([](ToyStep& it) {
    if (it.step == 3) it.parameters[1] = 2.0000002F;
  });
  ASSERT_TRUE(all.first_divergence.has_value());
  EXPECT_EQ(all.first_divergence->rank, kAllRanks);
}

TEST_F(ExactRuns, TheSentenceNamesWhatBothRecorded) {
  const Mechanism whole = with(nullptr);
  EXPECT_EQ(whole.verdict, VerdictKind::identical);
  EXPECT_THAT(whole.sentence, HasSubstr("row by row: energies, loss, local gradients, reduced gradients and parameters."));
  const Mechanism without = with([](ToyStep& it) { it.rows.clear(); });
  EXPECT_EQ(without.verdict, VerdictKind::divergent) << "rows that are lost are a difference";
}

}  // namespace
}  // namespace lockstep
