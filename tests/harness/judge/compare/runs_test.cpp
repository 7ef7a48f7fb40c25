#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/writer.h"
#include "tests/support/made_run.h"
#include "tests/support/temp_folder.h"

// Runs of other trainers: what their tracers may write otherwise is no difference, and what is wrong beside it is found.

namespace lockstep {
namespace {

using support::parts_at;
using ::testing::HasSubstr;

/// A run of SGD on one tensor w of four elements, every rank with the same gradient.
struct SgdRun {
  int world_size = 1;
  int64_t steps = 3;
  std::function<double(int64_t step, int rank)> loss = [](int64_t, int) { return 5.702017307281494; };
  std::function<float(int64_t step)> size = [](int64_t) { return 1.0F; };  ///< of the reduced gradient
  /// What the optimizer takes of it; null: it is not recorded, and it takes the whole.
  std::function<std::vector<float>(const std::vector<float>&)> clip;
  float drift = 0;  ///< added to the parameter at step 0
  bool led = false;  ///< each step begins with what it begins with where no size, clipping or drift has moved it, and keeps it
  std::shared_ptr<const Declared> declared = {};
  std::function<void(TraceWriter&, int64_t step, int rank)> extra = [](TraceWriter&, int64_t, int) {};
};

void write_tensor(TraceWriter& writer, Phase phase, const std::string& name, const std::vector<float>& values, Sharing sharing,
                  std::vector<int64_t> shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  writer.tensor(phase, name, {values.data(), DType::float32, shape, {}}, sharing, {}, Keep::whole);
}

void write_run(const std::string& dir, const SgdRun& run) {
  const TraceHeader header{"hash", 0, run.world_size, "somebody's", TraceLevel::full, "other", run.declared};
  support::write_ranks(dir, header, [&](TraceWriter& writer, int rank) {
    std::vector<float> w{1, 1, 1, 1}, right = w;
    writer.begin_step(-1);
    write_tensor(writer, Phase::parameters, "w", w, Sharing::replicated);
    run.extra(writer, -1, rank);
    writer.end_step();
    for (int64_t step = 0; step < run.steps; ++step) {
      std::vector<float> gradient{0.1F, -0.2F, 0.3F, 0.4F};
      double squares = 0;
      if (run.led) w = right;
      for (std::size_t i = 0; i < w.size(); ++i) right[i] += -0.1F * gradient[i];
      const std::vector<float> began = w;
      for (float& value : gradient) {
        value *= run.size(step);
        squares += static_cast<double>(value) * value;
      }
      std::vector<int64_t> samples;
      for (int64_t row = rank; row < 12; row += run.world_size) samples.push_back(row + 12 * step);
      writer.begin_step(step);
      if (run.led) write_tensor(writer, Phase::snapshot, "w", began, Sharing::replicated);
      writer.samples(samples);
      writer.scalar(Phase::control, "learning_rate", 0.1, Sharing::replicated);
      writer.scalar(Phase::loss, "loss", run.loss(step, rank), Sharing::own);
      write_tensor(writer, Phase::local_gradients, "w", gradient, Sharing::own);
      run.extra(writer, step, rank);
      write_tensor(writer, Phase::reduced_gradients, "w", gradient, Sharing::replicated);
      writer.scalar(Phase::gradient_norm, "gradient_norm", std::sqrt(squares), Sharing::replicated);
      const std::vector<float> taken = run.clip ? run.clip(gradient) : gradient;
      if (run.clip) write_tensor(writer, Phase::applied_gradients, "w", taken, Sharing::replicated);
      for (std::size_t i = 0; i < w.size(); ++i) w[i] += -0.1F * taken[i] + (step == 0 ? run.drift : 0);
      write_tensor(writer, Phase::parameters, "w", w, Sharing::replicated);
      writer.end_step();
    }
  });
}

class ForeignRuns : public ::testing::Test {
 protected:
  Mechanism compare(const SgdRun& a, const SgdRun& b) {
    const std::string folder = folder_ / std::to_string(++pairs_);
    write_run(folder + "/a", a);
    write_run(folder + "/b", b);
    return compare_runs({folder + "/a", folder + "/b", {}, {}});
  }
  TempFolder folder_;
  int pairs_ = 0;
};

TEST_F(ForeignRuns, LossesOfRanksAreComparedByTheirMeanWithinRounding) {
  SgdRun a, unit, of_ranks, of_other_ranks, wrong;
  unit.loss = [](int64_t, int) { return 5.702017784118652; };  // one float32 unit in the last place
  const Mechanism by_rounding = compare(a, unit);
  EXPECT_EQ(by_rounding.verdict, VerdictKind::within_envelope) << by_rounding.sentence;
  EXPECT_THAT(by_rounding.sentence, HasSubstr("What two programs may do in ways of their own differs, first at step"));
  of_ranks.world_size = of_other_ranks.world_size = 3;
  of_ranks.loss = [](int64_t, int rank) { return 6.0 + rank; };
  of_other_ranks.loss = [](int64_t, int) { return 7.0; };
  EXPECT_EQ(compare(of_ranks, of_other_ranks).verdict, VerdictKind::within_envelope);
  wrong.loss = [](int64_t step, int) { return step == 1 ? 5.703 : 5.702017307281494; };
  const Mechanism found = compare(a, wrong);
  EXPECT_EQ(found.verdict, VerdictKind::within_envelope) << "a loss that is logged otherwise beside the same gradients is no difference";
  EXPECT_THAT(found.sentence, HasSubstr("first at step 1, loss, loss: expected 5.70202, found 5.703"));
  wrong.size = [](int64_t step) { return step == 1 ? 1.01F : 1.0F; };
  const Mechanism followed = compare(a, wrong);
  ASSERT_THAT(followed, parts_at({.step = 1, .phase = "loss"})) << "where gradients differ, the loss is the place";
  wrong.loss = unit.loss;
  wrong.size = [](int64_t step) { return step == 2 ? 1.01F : 1.0F; };
  const Mechanism behind = compare(a, wrong);
  ASSERT_THAT(behind, parts_at({.step = 2, .phase = "local gradients"}))
      << "what comes behind a loss that rounding explains is compared all the same";
}

TEST_F(ForeignRuns, AnotherOrderOfASumIsNoDifferenceInAnyScalar) {
  const auto scalars = [](double times) {
    return [times](TraceWriter& writer, int64_t step, int) {
      if (step < 0) return;
      writer.scalar(Phase::loss, "auxiliary", 0.25 * times, Sharing::own);
      writer.scalar(Phase::gradient_norm, "norm of the head", 3 * times, Sharing::replicated);
    };
  };
  SgdRun a, unit, wrong;
  a.extra = scalars(1);
  unit.extra = scalars(1 + 1.2e-7);
  wrong.extra = scalars(1.001);
  const Mechanism by_rounding = compare(a, unit);
  EXPECT_EQ(by_rounding.verdict, VerdictKind::within_envelope) << by_rounding.sentence;
  EXPECT_EQ(compare(a, wrong).verdict, VerdictKind::divergent);
}

/// Records a tensor of six rows whole, or two rows of it on each of three ranks.
std::function<void(TraceWriter&, int64_t, int)> table(bool in_shards, Sharing sharing) {
  return [=](TraceWriter& writer, int64_t step, int rank) {
    if (step >= 0) return;
    std::vector<float> values;
    const int first = in_shards ? 4 * rank : 0, count = in_shards ? 4 : 12;
    for (int i = first; i < first + count; ++i) values.push_back(static_cast<float>(i));
    write_tensor(writer, Phase::parameters, "table", values, sharing, {count / 2, 2});
  };
}

TEST_F(ForeignRuns, AShardIsNoDifferenceFromTheWholeAndIsSaidNotToBeCompared) {
  SgdRun a, b;
  a.world_size = b.world_size = 3;
  a.extra = table(false, Sharing::replicated);
  b.extra = table(true, Sharing::own);
  const Mechanism shards = compare(a, b);
  EXPECT_EQ(shards.verdict, VerdictKind::inconclusive) << shards.sentence;
  EXPECT_THAT(shards.sentence, HasSubstr("Not compared: 1 tensor of another shape"));
  SgdRun one = a;
  one.world_size = 1;
  EXPECT_EQ(compare(one, b).verdict, VerdictKind::inconclusive);
  b.size = [](int64_t step) { return step == 1 ? -1.0F : 1.0F; };
  EXPECT_EQ(compare(a, b).verdict, VerdictKind::divergent) << "what both hold in one shape is compared";
  b = a;
  b.extra = table(true, Sharing::replicated);
  const Mechanism wrong = compare(a, b);
  EXPECT_EQ(wrong.verdict, VerdictKind::divergent) << "all ranks call it alike: no shard";
}

std::function<void(TraceWriter&, int64_t, int)> reduces(const std::string& op, const std::string& tag, const std::string& group,
                                                        const std::function<uint64_t(int64_t)>& out) {
  return [=](TraceWriter& writer, int64_t step, int rank) {
    if (step < 0) return;
    const uint64_t in = 7919 * static_cast<uint64_t>(step + 1) + static_cast<uint64_t>(rank) * 104729;
    writer.collective({op, op == "all_gather" ? "" : "sum", group, tag, -1, DType::float32, {2}, in, out(step)});
  };
}

TEST_F(ForeignRuns, PartsThatATracerCallsAlikeAreNoReplicas) {
  const auto holding = [](int world_size, int64_t rows) {
    SgdRun run;
    run.world_size = world_size;
    run.extra = [rows](TraceWriter& writer, int64_t step, int rank) {
      const std::vector<float> held(static_cast<std::size_t>(2 * rows), static_cast<float>(rank + 1));
      if (step < 0) write_tensor(writer, Phase::parameters, "v", held, Sharing::replicated, {rows, 2});
    };
    return run;
  };
  const Mechanism parts = compare(holding(1, 6), holding(3, 2)), replicas = compare(holding(1, 6), holding(3, 6));
  EXPECT_NE(parts.verdict, VerdictKind::divergent) << parts.sentence;
  ASSERT_THAT(replicas, parts_at({.where = "v"}));
}

TEST_F(ForeignRuns, WhatOneOfTwoProgramsExchangesIsItsOwn) {
  const auto by_step = [](int64_t step) { return static_cast<uint64_t>(step) * 31 + 5; };
  for (const char* group : {"world", "", "gradients", "loss"}) {
    for (const int ranks_of_b : {1, 3}) {
      SgdRun a, b;
      a.world_size = ranks_of_b == 1 ? 3 : 1;
      b.world_size = ranks_of_b;
      a.extra = reduces("reduce_gradients", "bucket 0", group, by_step);
      EXPECT_NE(compare(a, b).verdict, VerdictKind::divergent) << group;
      b.extra = reduces("all_gather", "shard 0", group, by_step);
      EXPECT_NE(compare(a, b).verdict, VerdictKind::divergent) << group;
      a.extra = reduces("all_reduce", "tokens", group, by_step);
      b.extra = reduces("all_gather", "tokens", group, by_step);
      EXPECT_NE(compare(a, b).verdict, VerdictKind::divergent) << group;
      b.size = [](int64_t step) { return step == 0 ? 1.01F : 1.0F; };
      const Mechanism wrong = compare(a, b);
      ASSERT_THAT(wrong, parts_at({.phase = "local gradients"})) << "and hides nothing";
    }
  }
  SgdRun a, b;
  a.world_size = b.world_size = 3;
  a.extra = reduces("reduce_gradients", "bucket 0", "world", by_step);
  b.extra = reduces("all_gather", "bucket 0", "fsdp", by_step);
  const Mechanism at_one_layout = compare(a, b);
  EXPECT_NE(at_one_layout.verdict, VerdictKind::divergent) << at_one_layout.sentence;
  b.size = [](int64_t step) { return step == 2 ? 1.01F : 1.0F; };
  const Mechanism wrong = compare(a, b);
  ASSERT_THAT(wrong, parts_at({.step = 2, .phase = "local gradients"}));
}

TEST_F(ForeignRuns, ASumOfCountsMayRepeat) {
  SgdRun a, b;
  b.world_size = 2;
  b.extra = reduces("all_reduce", "rows and tokens", "loss", [](int64_t) { return uint64_t{5236450}; });
  const Mechanism result = compare(a, b);
  EXPECT_NE(result.verdict, VerdictKind::divergent) << result.sentence;
}

std::vector<float> times(std::vector<float> values, double factor) {
  for (float& value : values) value *= static_cast<float>(factor);
  return values;
}

double norm_of(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

TEST_F(ForeignRuns, ClippingThatNobodyDeclaresMayActOnOneRunAlone) {
  const auto by_norm = [](const std::vector<float>& gradient) {
    return times(gradient, std::min(1.0, 0.5 / (norm_of(gradient) + 1e-6)));
  };
  const auto by_value = [](std::vector<float> gradient) {
    for (float& value : gradient) value = std::clamp(value, -0.38F, 0.38F);
    return gradient;
  };
  for (const auto& clip : {std::function<std::vector<float>(const std::vector<float>&)>(by_norm),
                           std::function<std::vector<float>(const std::vector<float>&)>(by_value)}) {
    SgdRun a, b;
    b.world_size = 2;
    b.drift = 1e-6F;  // their parameters are not the same any more
    a.clip = b.clip = clip;
    a.size = [](int64_t step) { return step == 0 ? 0.5F : 0.9F; };  // norms 0.27 and 0.49, of 0.55 at size 1
    b.size = [](int64_t step) { return step == 0 ? 0.5F : 1.0F; };
    const Mechanism both = compare(a, b);
    EXPECT_NE(both.verdict, VerdictKind::divergent) << both.sentence;
    a.clip = [](const std::vector<float>& gradient) { return gradient; };
    a.size = [](int64_t step) { return step == 0 ? 0.5F : 1.2F; };
    const Mechanism one = compare(a, b);
    ASSERT_THAT(one, parts_at({.step = 1, .phase = "applied gradients"}))
        << "the reference is above the limit, and took all";
  }
  SgdRun a, b;
  b.world_size = 2;
  b.drift = 1e-6F;
  a.clip = [](const std::vector<float>& gradient) { return gradient; };
  b.clip = [](const std::vector<float>& gradient) { return times(gradient, 0.5); };
  EXPECT_EQ(compare(a, b).verdict, VerdictKind::divergent) << "halved whatever its norm";
}

/// A declaration with one key on the side of each run.
struct Declarations {
  const char *a, *b, *told;
};

TEST_F(ForeignRuns, WhatHeadersDeclareOtherwiseIsToldFirst) {
  const char* const adam = R"({"optimizer": {"name": "adam", "betas": [0.9, 0.999], "eps": 1e-8}})";
  for (const Declarations& each : {Declarations{R"({"optimizer": {"name": "sgd"}})", adam, "optimizer sgd / adam"},
                                   {adam, R"({"optimizer": {"name": "adam", "betas": [0.8, 0.99], "eps": 1e-8}})", "beta1 0.9 / 0.8, beta2 0.999 / 0.99"},
                                   {adam, R"({"optimizer": {"name": "adam", "eps": 1e-6}})", "eps 1e-08 / 1e-06"},
                                   {R"({"clip_norm": 1})", R"({"clip_norm": 2})", "clip_norm 1 / 2"},
                                   {R"({"clip_norm": 1})", "{}", "clip_norm 1 / not declared"},
                                   {"{}", adam, "optimizer not declared / adam"},
                                   {R"({"global_batch": 24})", R"({"global_batch": 12})", "global_batch 24 / 12"},
                                   {R"({"accumulation": 1})", R"({"accumulation": 2})", "accumulation 1 / 2"},
                                   {R"({"base_rate": 0.1})", R"({"base_rate": 0.2})", "base_rate 0.1 / 0.2"},
                                   {R"({"gradient_reduction": "mean"})", R"({"gradient_reduction": "sum"})", "gradient_reduction mean / sum"},
                                   {R"({"parameters": [{"prefix": "w", "rate_factor": 2}]})", "{}", "parameters.rate_factor w: 2 / not declared"},
                                   {R"({"precision": "float32"})", R"({"precision": "bfloat16"})", "precision float32 / bfloat16"}}) {
    std::string why;
    SgdRun a, b;
    a.declared = std::make_shared<const Declared>(declared_from_json(nlohmann::json::parse(each.a), 1, why).value());
    b.declared = std::make_shared<const Declared>(declared_from_json(nlohmann::json::parse(each.b), 1, why).value());
    const Mechanism found = compare(a, b);
    EXPECT_EQ(found.verdict, VerdictKind::identical) << found.sentence;
    EXPECT_TRUE(found.sentence.starts_with(std::string("Configs differ in ") + each.told + ". ")) << found.sentence;
    EXPECT_EQ(compare(b, b).sentence.find("differ"), std::string::npos);
  }
}

/// What a tracer writes beside a tensor that is not so.
void write_scores(TraceWriter& writer, int64_t step, const std::vector<int64_t>& ids) {
  if (step < 0) return;
  const std::vector<float> values{1, 2, 3, 4};
  const std::vector<int64_t> shape{2, 2};
  writer.tensor(Phase::scores, "energies", {values.data(), DType::float32, shape, {}}, Sharing::own, ids, Keep::whole);
}

TEST_F(ForeignRuns, ATracerThatContradictsItselfIsToldSo) {
  SgdRun a, b;
  a.extra = [](TraceWriter& writer, int64_t step, int) { write_scores(writer, step, {12 * step, 12 * step + 1}); };
  EXPECT_EQ(compare(a, a).sentence.find("contradict"), std::string::npos) << compare(a, a).sentence;
  b.extra = [](TraceWriter& writer, int64_t step, int) { write_scores(writer, step, {12 * step + 1, 12 * step}); };
  const Mechanism swapped = compare(a, b);
  EXPECT_EQ(swapped.verdict, VerdictKind::identical) << swapped.sentence;
  EXPECT_THAT(swapped.sentence, HasSubstr("contradict themselves: step 0, rank 0, energies, energies: the hashes are the same and the sample ids of the rows are not (and 2 more)"));
  b.extra = [](TraceWriter& writer, int64_t step, int) { write_scores(writer, step, {12 * step, 777}); };
  EXPECT_THAT(compare(b, b).sentence, HasSubstr("row 1 is of sample 777, which is not among the rank's samples of the step"));
}

TEST_F(ForeignRuns, ARunThatItsReferenceLeadsIsDecided) {
  SgdRun a, b;
  b.world_size = 3;
  b.drift = 1e-3F;  // as rounding that training has amplified
  EXPECT_EQ(compare(a, b).verdict, VerdictKind::inconclusive);
  EXPECT_EQ(compare(a, b).decide, "lockstep check --ranks 1,3 -- COMMAND");
  a.led = b.led = true;
  const auto compared = [&](const SgdRun& run, const std::string& problem = "") {
    const std::string folder = folder_ / std::to_string(++pairs_);
    write_run(folder + "/a", a);
    write_run(folder + "/b", run);
    write_file_atomically(folder + "/b/rank-0.probe.json", R"({"led": {"steps": [0, 1, 2], "problem": ")" + problem + "\"}}");
    return compare_runs({folder + "/a", folder + "/b", {}, {}});
  };
  const Mechanism same = compared(b);
  EXPECT_EQ(same.verdict, VerdictKind::within_envelope) << same.sentence;
  EXPECT_EQ(same.decide, "");
  EXPECT_EQ(compared(b, "another shape").verdict, VerdictKind::inconclusive);
  SgdRun wrong = b;
  wrong.size = [](int64_t step) { return step == 2 ? 1.001F : 1.0F; };
  const Mechanism other = compared(wrong);
  EXPECT_THAT(other, parts_at({.step = 2}));
  wrong.led = false;  // it says that it was led, and was not
  EXPECT_EQ(compared(wrong).verdict, VerdictKind::inconclusive);
}

TEST_F(ForeignRuns, WhatForwardPassesDrawIsAnotherDrawOfAnotherLayout) {
  SgdRun a, b;
  b.world_size = 3;
  b.size = [](int64_t) { return 1.3F; };
  EXPECT_EQ(compare(a, b).verdict, VerdictKind::divergent);
  const auto draw = [](TraceWriter& writer, int64_t step, int rank) {
    if (step >= 0) writer.random("process/model", 7 + static_cast<uint64_t>(rank), 4);
  };
  a.extra = b.extra = draw;
  const Mechanism drawn = compare(a, b);
  EXPECT_EQ(drawn.verdict, VerdictKind::inconclusive) << drawn.sentence;
  EXPECT_THAT(drawn.sentence, HasSubstr("Losses and gradients of 3 steps were not compared"));
  // Ranks that drew the same on both sides computed the same thing.
  SgdRun c = b;
  c.size = [](int64_t) { return 1.0F; };
  EXPECT_EQ(compare(c, b).verdict, VerdictKind::divergent);
}

TEST_F(ForeignRuns, ABufferThatStandsStillInTheReferenceStandsStill) {
  const auto buffers = [](int64_t from, int of_rank) {
    return [=](TraceWriter& writer, int64_t step, int rank) {
      const float moving = step >= from && rank == of_rank ? 2.0F : 1.0F;
      write_tensor(writer, Phase::parameters, "buffer/mean", {moving, 0}, Sharing::own);
      write_tensor(writer, Phase::parameters, "buffer/count", {static_cast<float>(step), 0}, Sharing::own);
    };
  };
  SgdRun a, b, moved;
  b.world_size = moved.world_size = 3;
  a.extra = b.extra = buffers(100, 0);
  moved.extra = buffers(2, 1);
  EXPECT_NE(compare(a, b).verdict, VerdictKind::divergent);
  const Mechanism found = compare(a, moved);
  ASSERT_THAT(found, parts_at({.step = 2, .rank = 1, .where = "buffer/mean"}));
}

TEST(Contradictions, StatisticsAreHeldAgainstValuesAndHashes) {
  const std::vector<float> values{3, -4};
  Record sound;
  sound.phase = Phase::parameters;
  sound.name = "w";
  sound.shape = {2};
  sound.has_stats = true;
  sound.stats = tensor_stats({values.data(), DType::float32, sound.shape, {}});
  sound.payload.assign(reinterpret_cast<const std::byte*>(values.data()), reinterpret_cast<const std::byte*>(values.data() + 2));
  const auto told = [&](const Record& b) {
    Contradictions found;
    found.look({3, {{3, {sound}}}}, {3, {{3, {b}}}}, "a", "b");
    return found.sentence();
  };
  EXPECT_EQ(told(sound), "");
  struct Case {
    const char* words;
    void (*plant)(Record&);
  };
  for (const Case& each : {Case{"the norms 6 and 5", [](Record& r) { r.stats.norm = 6; }}, Case{"the minima -5 and -4", [](Record& r) { r.stats.min = -5; }},
                           Case{"the maxima 7 and 3", [](Record& r) { r.stats.max = 7; }}, Case{"the counts of non-finite values 1 and 0", [](Record& r) { r.stats.nonfinite = 1; }}}) {
    Record beside_values = sound, by_hash = sound;
    each.plant(beside_values);
    EXPECT_THAT(told(beside_values), HasSubstr(std::string("step 3, rank 0, parameters, w: in b, recorded and of its values, ") + each.words));
    each.plant(by_hash);
    by_hash.payload.clear();
    EXPECT_THAT(told(by_hash), HasSubstr("w: the hashes are the same, the "));
  }
  Record rounded = sound, other_hash = sound, other_values = sound;
  rounded.stats.norm *= 1 + 1e-6;
  EXPECT_EQ(told(rounded), "") << "another order of the sum";
  other_hash.stats.hash ^= 1;
  EXPECT_THAT(told(other_hash), HasSubstr("the values are the same and the hashes are not"));
  other_values.payload[0] ^= std::byte{1};
  other_values.has_stats = false;
  EXPECT_THAT(told(other_values), HasSubstr("the hashes are the same and the values are not"));
}

TEST(Contradictions, PartsAndIdsOfRowsAreHeldAgainstEachOther) {
  const std::vector<float> values{3, -4};
  Record part;
  part.phase = Phase::parameters;
  part.name = "w";
  part.shape = {2};
  part.placement = std::make_shared<const Placement>(Placement{true, {4}, {2}});
  part.stats.hash = 7;
  part.payload.assign(reinterpret_cast<const std::byte*>(values.data()), reinterpret_cast<const std::byte*>(values.data() + 2));
  const auto of_part = [&](const Record& b) {
    Contradictions found;
    found.look({3, {{3, {}}}, {}, {{part}}}, {3, {{3, {}}}, {}, {{b}}}, "a", "b");
    return found.sentence();
  };
  Record other_hash = part, elsewhere = part;
  other_hash.stats.hash = elsewhere.stats.hash = 8;
  elsewhere.placement = std::make_shared<const Placement>(Placement{true, {4}, {0}});
  EXPECT_EQ(of_part(part), "");
  EXPECT_EQ(of_part(elsewhere), "") << "another part of the tensor";
  EXPECT_THAT(of_part(other_hash), HasSubstr("the values are the same and the hashes are not"));
  Record samples, losses;
  samples.phase = Phase::samples;
  samples.ids = {4, 5};
  losses.phase = Phase::loss;
  losses.name = "row_losses";
  losses.ids = {4, 5};
  const auto of_rows = [&](const Record& b) {
    Contradictions found;
    found.look({3, {{3, {samples, losses}}}}, {3, {{3, {samples, b}}}}, "a", "b");
    return found.sentence();
  };
  Record exchanged = losses, strange = losses;
  exchanged.ids = {5, 4};
  strange.ids = {4, 9};
  EXPECT_EQ(of_rows(losses), "");
  EXPECT_THAT(of_rows(exchanged), HasSubstr("the hashes are the same and the sample ids of the rows are not"));
  EXPECT_THAT(of_rows(strange), HasSubstr("row 1 is of sample 9, which is not among the rank's samples of the step"));
}

/// What a rank records of one generator.
struct State {
  uint64_t hash = 0;
  double draws = 12;
};

StepOfRun step_of(const std::vector<State>& ranks, const std::string& declared = "", const std::string& stream = "process/dropout") {
  StepOfRun step;
  step.step = 2;
  for (const State& state : ranks) {
    Record record;
    record.phase = Phase::random;
    record.name = stream;
    record.stats.hash = state.hash;
    record.value = state.draws;
    step.ranks.push_back({2, {record}});
  }
  if (!declared.empty()) {
    auto header = std::make_shared<Declared>();
    header->streams[stream] = declared;
    step.declared = header;
  }
  return step;
}

TEST(Generators, AreStreamsWithAScope) {
  for (const char* stream : {"process/dropout", "worker 3/augment", "device 0/noise"}) EXPECT_TRUE(is_of_a_generator(stream)) << stream;
  for (const char* stream : {"dropout", "context noise", "processor/dropout", "worker", "processes"}) EXPECT_FALSE(is_of_a_generator(stream)) << stream;
  EXPECT_EQ(name_of_generator("worker 3/augment"), "augment");
}

TEST(Generators, AreDeclaredByTheirWholeNameOrWithoutTheirScope) {
  StepOfRun step = step_of({{1}});
  EXPECT_EQ(declared_state(step, "process/dropout"), "");
  auto header = std::make_shared<Declared>();
  header->streams["dropout"] = "rank";
  header->streams["device 1/dropout"] = "same";
  step.declared = header;
  EXPECT_EQ(declared_state(step, "process/dropout"), "rank");
  EXPECT_EQ(declared_state(step, "device 1/dropout"), "same") << "the whole name goes first";
  EXPECT_EQ(declared_state(step, "process/noise"), "");
}

TEST(GeneratorsDifference, IsNoneWhereEachRankHasItsOwnState) {
  EXPECT_FALSE(generators_difference(step_of({{1, 24}}, "rank"), step_of({{2}, {3}}, "rank")));
  EXPECT_FALSE(generators_difference(step_of({{1}, {2}}), step_of({{3}, {4}}))) << "which states those are only a seed decides";
}

TEST(GeneratorsDifference, RanksInOneStateAreTold) {
  const auto declared = generators_difference(step_of({{1, 24}}, "rank"), step_of({{5}, {5}}, "rank"));
  ASSERT_TRUE(declared);
  EXPECT_EQ(declared->phase, Phase::random);
  EXPECT_EQ(declared->divergence.rank, kAllRanks);
  EXPECT_EQ(declared->divergence.where, "process/dropout");
  EXPECT_EQ(declared->divergence.expected, "another state on each rank");
  EXPECT_TRUE(generators_difference(step_of({{1}, {2}}), step_of({{5}, {5}}))) << "the reference's ranks have states of their own";
  EXPECT_FALSE(generators_difference(step_of({{1}, {1}}), step_of({{5}, {5}}))) << "as the reference's are";
  EXPECT_FALSE(generators_difference(step_of({{1, 24}}), step_of({{5}, {5}}))) << "and of one process nothing is known";
  EXPECT_FALSE(generators_difference(step_of({{1, 0}}, "rank"), step_of({{5, 0}, {5, 0}}, "rank"))) << "nobody draws from it";
}

TEST(GeneratorsDifference, RanksInSeveralStatesOfWhatIsDeclaredTheSameAreTold) {
  EXPECT_FALSE(generators_difference(step_of({{1}}, "same"), step_of({{7}, {7}, {7}}, "same")));
  const auto odd = generators_difference(step_of({{1}}, "same"), step_of({{7}, {8}, {7}}, "same"));
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->divergence.rank, 1);
  EXPECT_THAT(odd->divergence.actual, HasSubstr("0000000000000008"));
}

TEST(GeneratorsDifference, OtherNumbersOfDrawsAreToldWhereTheDeclarationFixesThem) {
  // Each rank draws for its own rows: together as much as one process.
  EXPECT_FALSE(generators_difference(step_of({{1, 24}}, "rank"), step_of({{2, 12}, {3, 12}}, "rank")));
  const auto more = generators_difference(step_of({{1, 24}}, "rank"), step_of({{2, 12}, {3, 15}}, "rank"));
  ASSERT_TRUE(more);
  EXPECT_EQ(more->divergence.expected, "24 draws");
  EXPECT_EQ(more->divergence.actual, "27 draws");
  // One state on all ranks: each draws what one process does.
  EXPECT_FALSE(generators_difference(step_of({{1, 24}}, "same"), step_of({{2, 24}, {2, 24}}, "same")));
  EXPECT_TRUE(generators_difference(step_of({{1, 24}}, "same"), step_of({{2, 12}, {2, 12}}, "same")));
  // Of two layouts nothing else tells.
  EXPECT_FALSE(generators_difference(step_of({{1, 24}}), step_of({{2, 24}, {3, 24}})));
  EXPECT_TRUE(generators_difference(step_of({{1, 24}, {2, 24}}), step_of({{2, 24}, {3, 25}}))) << "of one layout they are the same";
}

TEST(GeneratorsDifference, OfOneRunAloneTellsNothingOfDraws) {
  EXPECT_FALSE(generators_difference(step_of({{1}}, "rank", "process/noise"), step_of({{2}, {3, 99}}, "rank")));
}

TEST(GeneratorHistory, KeepsStatesOfGeneratorsAlone) {
  GeneratorHistory history;
  remember_generators(history, step_of({{7}, {8}}));
  remember_generators(history, step_of({{9}}, "", "dropout"));
  ASSERT_EQ(history.size(), 1u);
  EXPECT_EQ(history.at(2).at("process/dropout").at(1), 8u);
  EXPECT_FALSE(history.at(2).contains("dropout"));
}

}  // namespace
}  // namespace lockstep
