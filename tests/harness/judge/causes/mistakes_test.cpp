#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/causes/name_cause.h"
#include "harness/judge/trace/writer.h"
#include "tests/support/made_run.h"
#include "tests/support/temp_folder.h"

// Mistakes of trainers that are not ours, planted in small traces, and what must not be mistaken for them.

namespace lockstep {
namespace {

using support::parts_at;
using ::testing::HasSubstr;

struct Tensor {
  std::string name;
  std::vector<float> values;
};

using Tensors = std::vector<Tensor>;

struct Draws {
  std::string stream;
  uint64_t state = 0, count = 0;
};

/// What one rank records of a step.
struct RankOfStep {
  std::vector<int64_t> ids, contents;
  std::map<std::string, double> controls;
  double loss = 0;
  std::vector<std::string> calls;  ///< operations of collectives
  std::vector<Draws> draws;
  Tensors local, reduced, applied, parameters, parts, state;  ///< parts: "micro 0/w"; state: "first_moment/w"
  double updates = 0;
};

struct StepOfAll {
  int64_t step = 0;
  std::vector<RankOfStep> ranks;
};

using Edit = std::function<void(StepOfAll&)>;

/// A run of SGD on three tensors. The gradient of a row follows from its sample id alone, so that layouts differ by rounding.
struct OtherRun {
  int world = 1;
  int64_t first = 0, steps = 4;
  std::string declared = "{}";
  std::function<double(int64_t)> rate = [](int64_t) { return 0.125; };
  float clip = 0;
  bool by_sum = false;
  Edit before_reduction = [](StepOfAll&) {}, before_update = [](StepOfAll&) {}, at_end = [](StepOfAll&) {};
  std::function<void(Tensors&)> weights = [](Tensors&) {};  ///< that the first step begins with
};

constexpr int64_t kRows = 12;

float gradient_of(int64_t id, std::size_t tensor, std::size_t element) {
  return static_cast<float>((id * 37 + static_cast<int64_t>(tensor) * 5 + static_cast<int64_t>(element) * 11) % 17 - 7) / 64;
}

Tensors initial() { return {{"emb", {1, 2, 3, 4}}, {"w", {0.5F, -0.5F, 0.25F, 1, -1, 2}}, {"b", {0.125F, 0.375F}}}; }

float norm_of(const Tensors& tensors) {
  double squares = 0;
  for (const Tensor& each : tensors) {
    for (const float value : each.values) squares += static_cast<double>(value) * value;
  }
  return static_cast<float>(std::sqrt(squares));
}

Tensors scaled(Tensors tensors, float factor) {
  for (Tensor& each : tensors) {
    for (float& value : each.values) value *= factor;
  }
  return tensors;
}

/// As PyTorch computes it.
float clip_of(float limit, const Tensors& tensors) { return std::min(1.0F, limit / (norm_of(tensors) + 1e-6F)); }

const Tensor* find(const Tensors& tensors, const std::string& name) {
  const auto at = std::ranges::find(tensors, name, &Tensor::name);
  return at == tensors.end() ? nullptr : &*at;
}

void lose(Tensors& tensors, const std::string& name) {
  std::erase_if(tensors, [&](const Tensor& each) { return each.name == name; });
}

RankOfStep rank_of_step(const OtherRun& run, int64_t step, int rank) {
  RankOfStep own;
  own.local = scaled(initial(), 0);
  const double rows = static_cast<double>(kRows) / (run.by_sum ? 1 : run.world);
  for (int64_t row = rank; row < kRows; row += run.world) {
    const int64_t id = kRows * step + row;
    own.ids.push_back(id);
    own.contents.push_back(1000 + 7 * id);
    own.loss += static_cast<double>(id % 7) / 8 / rows;
    for (std::size_t k = 0; k < own.local.size(); ++k) {
      for (std::size_t i = 0; i < own.local[k].values.size(); ++i) own.local[k].values[i] += gradient_of(id, k, i) / static_cast<float>(rows);
    }
  }
  own.controls["learning_rate"] = run.rate(step);
  own.updates = static_cast<double>(step) + 1;
  return own;
}

Tensors reduced_of_ranks(const OtherRun& run, const StepOfAll& step) {
  Tensors reduced = step.ranks[0].local;
  for (std::size_t rank = 1; rank < step.ranks.size(); ++rank) {
    for (Tensor& each : reduced) {
      const Tensor* other = find(step.ranks[rank].local, each.name);
      for (std::size_t i = 0; i < each.values.size(); ++i) each.values[i] += other->values[i];
    }
  }
  return scaled(std::move(reduced), run.by_sum ? 1 : 1 / static_cast<float>(run.world));
}

StepOfAll step_of(const OtherRun& run, int64_t number, std::vector<Tensors>& weights) {
  StepOfAll step{number, {}};
  for (int rank = 0; rank < run.world; ++rank) step.ranks.push_back(rank_of_step(run, number, rank));
  run.before_reduction(step);
  const Tensors reduced = reduced_of_ranks(run, step);
  for (RankOfStep& rank : step.ranks) {
    rank.reduced = reduced;
    rank.applied = scaled(reduced, run.clip > 0 ? clip_of(run.clip, reduced) : 1);
  }
  run.before_update(step);
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    for (Tensor& each : weights[rank]) {
      const Tensor* taken = find(step.ranks[rank].applied, each.name);
      for (std::size_t i = 0; taken && i < each.values.size(); ++i) each.values[i] -= static_cast<float>(step.ranks[rank].controls["learning_rate"]) * taken->values[i];
    }
    step.ranks[rank].parameters = weights[rank];
  }
  run.at_end(step);
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    for (Tensor& each : weights[rank]) each = *find(step.ranks[rank].parameters, each.name);
  }
  return step;
}

void write_tensors(TraceWriter& writer, Phase phase, const Tensors& tensors, Sharing sharing) {
  for (const Tensor& each : tensors) {
    const std::vector<int64_t> shape{static_cast<int64_t>(each.values.size())};
    writer.tensor(phase, each.name, {each.values.data(), DType::float32, shape, {}}, sharing, {}, Keep::whole);
  }
}

void write_step(TraceWriter& writer, int64_t step, const RankOfStep& rank) {
  writer.begin_step(step);
  if (!rank.ids.empty()) writer.samples(rank.ids);
  for (const Draws& each : rank.draws) writer.random(each.stream, each.state, each.count);
  if (!rank.contents.empty()) {
    const std::vector<int64_t> shape{static_cast<int64_t>(rank.contents.size())};
    writer.tensor(Phase::inputs, "inputs", {rank.contents.data(), DType::int64, shape, {}}, Sharing::own, rank.ids, Keep::whole);
  }
  for (const auto& [name, value] : rank.controls) writer.scalar(Phase::control, name, value, name == "skipped" ? Sharing::own : Sharing::replicated);
  writer.scalar(Phase::loss, "loss", rank.loss, Sharing::own);
  for (const std::string& op : rank.calls) {
    CollectiveRecord call;
    call.op = call.tag = op;
    call.group = "data";
    call.shape = {12};
    writer.collective(call);
  }
  write_tensors(writer, Phase::gradient_parts, rank.parts, Sharing::own);
  write_tensors(writer, Phase::local_gradients, rank.local, Sharing::own);
  write_tensors(writer, Phase::reduced_gradients, rank.reduced, Sharing::replicated);
  write_tensors(writer, Phase::applied_gradients, rank.applied, Sharing::replicated);
  write_tensors(writer, Phase::parameters, rank.parameters, Sharing::replicated);
  write_tensors(writer, Phase::optimizer_state, rank.state, Sharing::replicated);
  writer.scalar(Phase::optimizer_state, "updates", rank.updates, Sharing::replicated);
  writer.end_step();
}

void write_other_run(const std::string& dir, const OtherRun& run) {
  std::string why;
  const auto declared = std::make_shared<const Declared>(declared_from_json(nlohmann::json::parse(run.declared), run.world, why).value());
  std::vector<Tensors> weights(static_cast<std::size_t>(run.world), initial());
  std::vector<StepOfAll> steps;
  OtherRun before = run;
  before.before_reduction = before.before_update = before.at_end = [](StepOfAll&) {};
  for (int64_t step = 0; step < run.first; ++step) step_of(before, step, weights);
  for (Tensors& own : weights) run.weights(own);
  const std::vector<Tensors> begun = weights;
  for (int64_t step = run.first; step < run.first + run.steps; ++step) steps.push_back(step_of(run, step, weights));
  const TraceHeader header{"hash", 0, run.world, "somebody's", TraceLevel::full, "other", declared};
  support::write_ranks(dir, header, [&](TraceWriter& writer, int rank) {
    const auto at = static_cast<std::size_t>(rank);
    writer.begin_step(run.first - 1);
    write_tensors(writer, Phase::parameters, begun[at], Sharing::replicated);
    writer.end_step();
    for (const StepOfAll& step : steps) write_step(writer, step.step, step.ranks[at]);
  });
}

/// From step `first` on.
Edit from(int64_t first, const Edit& edit) {
  return [=](StepOfAll& step) {
    if (step.step >= first) edit(step);
  };
}

Edit on_each(const std::function<void(RankOfStep&)>& edit) {
  return [=](StepOfAll& step) {
    for (RankOfStep& rank : step.ranks) edit(rank);
  };
}

class MistakesOfAnyTrainer : public ::testing::Test {
 protected:
  Mechanism compare(const OtherRun& a, const OtherRun& b) {
    const std::string folder = folder_ / std::to_string(++pairs_);
    write_other_run(folder + "/a", a);
    write_other_run(folder + "/b", b);
    return compare_runs({folder + "/a", folder + "/b", {}, {}});
  }

  /// Expects that run B parts from run A there, and why.
  void expect(const OtherRun& a, const OtherRun& b, const std::string& code, int64_t step, const std::string& evidence = "", int rank = kRankUnknown) {
    const Mechanism found = compare(a, b);
    ASSERT_THAT(found, parts_at({.step = step, .cause = code}));
    EXPECT_THAT(found.cause->evidence, HasSubstr(evidence));
    if (rank < 0) return;
    EXPECT_EQ(found.first_divergence->rank, rank) << found.sentence;
    EXPECT_THAT(found.sentence, HasSubstr(fmt::format(", rank {}: ", rank)));
  }

  void expect_quiet(const OtherRun& a, const OtherRun& b) {
    const Mechanism found = compare(a, b);
    EXPECT_NE(found.verdict, VerdictKind::divergent) << found.sentence << "\n" << (found.cause ? found.cause->evidence : "");
  }

  TempFolder folder_;
  int pairs_ = 0;
};

OtherRun of_world(int world, const std::string& declared = "{}") { return {.world = world, .declared = declared}; }

TEST_F(MistakesOfAnyTrainer, AnotherLayoutIsNone) {
  for (const int world : {2, 3, 4}) expect_quiet(of_world(1), of_world(world));
  OtherRun sums = of_world(3, R"({"gradient_reduction": "sum"})"), clips = of_world(2, R"({"clip_norm": 0.0625})"), clips_alone = of_world(1, R"({"clip_norm": 0.0625})");
  sums.by_sum = true;
  clips.clip = clips_alone.clip = 0.0625F;
  expect_quiet(of_world(1, sums.declared), sums);
  expect_quiet(clips_alone, clips);
}

// --- control values ---

TEST_F(MistakesOfAnyTrainer, AScheduleThatEveryRankStepsIsToldByTheReferencesDecay) {
  OtherRun a = of_world(1), b = of_world(4);
  a.steps = b.steps = 8;
  a.rate = [](int64_t step) { return 0.125 * std::pow(0.5, static_cast<double>(step / 3)); };
  b.rate = [&](int64_t step) { return a.rate(4 * step); };
  expect(a, b, "scheduler-stepped-per-rank", 1, "the reference's at step 4 k");
  b.rate = [&](int64_t step) { return a.rate(step) * (step >= 1 ? 0.5 : 1); };
  expect(a, b, "rate-differs", 1);
  b.rate = a.rate;
  expect_quiet(a, b);
}

TEST_F(MistakesOfAnyTrainer, ARateIsScaledByRanksOnlyWhereItIsAtEveryStep) {
  OtherRun a = of_world(1), b = of_world(2);
  a.rate = [](int64_t step) { return 0.03125 * static_cast<double>(std::min<int64_t>(step + 1, 4)); };
  b.rate = [&](int64_t step) { return 2 * a.rate(step); };
  expect(a, b, "rate-scaled-linear", 0);
  b.rate = [&](int64_t step) { return step < 2 ? a.rate(step) : 2 * a.rate(step); };
  expect(a, b, "rate-scaled-linear", 2);
  b.rate = [&](int64_t step) { return std::min(0.125, 2 * a.rate(step)); };  // a warmup of half the steps
  expect(a, b, "rate-differs", 0);
  b.rate = a.rate;
  b.before_reduction = from(3, [](StepOfAll& step) { step.ranks[0].controls["learning_rate"] *= 2; });
  expect(a, b, "rate-differs", 3, "on rank 0");
}

TEST_F(MistakesOfAnyTrainer, TheRateOfAGroupIsToldByItsName) {
  OtherRun a = of_world(1), b = of_world(2);
  a.before_reduction = on_each([](RankOfStep& rank) { rank.controls["learning_rate/w"] = 0.5; });
  expect(a, b, "rate-differs", 0, "the rate of the group of w is 0.125 on all ranks, expected 0.5");
  b.before_reduction = a.before_reduction;
  expect_quiet(a, b);
}

TEST_F(MistakesOfAnyTrainer, AnUpdateThatOneRankLeavesOutIsItsOwnDecision) {
  OtherRun b = of_world(3);
  b.before_reduction = from(2, [](StepOfAll& step) { step.ranks[1].controls["skipped"] = 1; });
  expect_quiet(of_world(1), b);  // it ends with the parameters of those that make it: another rank has sent them
  b.at_end = from(2, [](StepOfAll& step) { step.ranks[1].parameters[0].values[0] += 1; });
  expect(of_world(1), b, "skip-decided-alone", 2, "rank 1 leaves out the update of step 2, and rank 0, 2 makes it", 1);
}

// --- samples and inputs ---

/// The rows of step `step` and of the next one, as one.
Edit rows_of_two_steps(int world) {
  return [=](StepOfAll& step) {
    for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
      for (int64_t row = static_cast<int64_t>(rank); row < kRows; row += world) {
        step.ranks[rank].ids.push_back(kRows * (step.step + 1) + row);
        step.ranks[rank].contents.push_back(1000 + 7 * step.ranks[rank].ids.back());
      }
    }
  };
}

TEST_F(MistakesOfAnyTrainer, RowsOfTwoStepsAreNoLargerBatch) {
  OtherRun b = of_world(2);
  b.before_reduction = from(2, rows_of_two_steps(2));
  OtherRun rests = b;
  rests.before_update = from(2, on_each([](RankOfStep& rank) { lose(rank.applied, "emb"); }));
  expect(of_world(1), rests, "parameter-not-updated", 2, "not those of 1: emb first");
  const Mechanism unknown = compare(of_world(1), b);
  ASSERT_TRUE(unknown.cause);
  EXPECT_NE(unknown.cause->code, "global-batch-times-world") << unknown.cause->evidence;
  b.before_reduction = rows_of_two_steps(2);  // from the first step on
  expect(of_world(1), b, "global-batch-times-world", 0);
}

TEST_F(MistakesOfAnyTrainer, ARankThatRepeatsItsRowsAsTheReferenceDoesIsBehind) {
  const auto repeats = [](std::size_t rank) {
    return [=](StepOfAll& step) {
      for (std::size_t of = 0; of < step.ranks.size(); ++of) {
        for (int64_t& id : step.ranks[of].ids)
          id = 5 * (id - (step.step == 2 && of == rank ? kRows : 0));  // of shuffled data
        step.ranks[of].contents.clear();
      }
    };
  };
  OtherRun a = of_world(1), b = of_world(3);
  a.before_reduction = repeats(0);
  b.before_reduction = repeats(2);
  expect(a, b, "rank-behind-data", 2,
         "rank 2 has the samples that it had at the previous step, and so has the reference");
  b.before_reduction = repeats(3);
  const Mechanism found = compare(a, b);
  ASSERT_TRUE(found.cause);
  EXPECT_NE(found.cause->code, "sampler-seed-differs") << found.cause->evidence;
}

TEST_F(MistakesOfAnyTrainer, RowsThatOneRankLacksAreThatRanks) {
  OtherRun b = of_world(3);
  b.before_reduction = from(1, [](StepOfAll& step) {
    for (std::vector<int64_t>* rows : {&step.ranks[1].ids, &step.ranks[1].contents}) rows->resize(2);
  });
  expect(of_world(1), b, "sample-dropped", 1, "2 samples of the reference's batch are missing", 1);
}

TEST_F(MistakesOfAnyTrainer, OtherContentsOfOneRanksRowsAreTold) {
  OtherRun b = of_world(3);
  const Edit of_one = [](StepOfAll& step) {
    for (int64_t& content : step.ranks[2].contents) ++content;
  };
  b.before_reduction = from(1, of_one);
  expect(of_world(1), b, "sample-content", 1, "4 of 4 of the rows of rank 2", 2);
  b.before_reduction = from(1, on_each([](RankOfStep& rank) { for (int64_t& content : rank.contents) ++content; }));
  expect(of_world(1), b, "unexplained", 1);
}

// --- random streams ---

/// Draws of the process and of the forward pass: each rank's own, other ones at each step.
Edit forward_draws() {
  return [](StepOfAll& step) {
    for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
      const uint64_t state = 100 * static_cast<uint64_t>(step.step) + rank + 1;
      step.ranks[rank].draws = {{"process/torch", state, 48 / step.ranks.size()}, {"process/model", state, 48 / step.ranks.size()}};
    }
  };
}

TEST_F(MistakesOfAnyTrainer, AProcessThatIsSeededAnewWithinAStepDoesNotAdvance) {
  OtherRun a = of_world(2), b = of_world(2);
  a.before_reduction = b.before_reduction = forward_draws();
  expect_quiet(a, b);
  b.before_reduction = [](StepOfAll& step) {
    forward_draws()(step);
    for (std::size_t rank = 0; step.step >= 2 && rank < step.ranks.size(); ++rank) step.ranks[rank].draws[0].count = 0, step.ranks[rank].draws[1].state = rank + 1;
  };
  expect(a, b, "stream-not-advanced", 2, "in the state of step 0");
  b.before_reduction = [](StepOfAll& step) {
    forward_draws()(step);
    for (std::size_t rank = 0; step.step >= 2 && rank < step.ranks.size(); ++rank) step.ranks[rank].draws[0].count = 0;
  };
  expect(a, b, "draws-missing", 2);
}

TEST_F(MistakesOfAnyTrainer, AForwardPassWithoutItsDrawsIsToldWhereTheLossShowsIt) {
  OtherRun a = of_world(1), b = of_world(1);
  a.before_reduction = forward_draws();
  b.before_reduction = [](StepOfAll& step) {
    forward_draws()(step);
    if (step.step < 2) return;
    step.ranks[0].loss = std::nan("");
    step.ranks[0].local[0].values[0] += 1;  // a loss that is logged otherwise beside the same gradients is no difference
    step.ranks[0].draws.pop_back();
  };
  const Mechanism found = compare(a, b);
  ASSERT_THAT(found, parts_at({.step = 2, .cause = "draws-missing"}));
}

// --- gradients and their reduction ---

TEST_F(MistakesOfAnyTrainer, AParameterWithoutGradientStandsStill) {
  OtherRun b = of_world(2);
  b.before_update = on_each([](RankOfStep& rank) {
    for (Tensors* tensors : {&rank.local, &rank.reduced, &rank.applied}) lose(*tensors, "emb");
  });
  expect(of_world(1), b, "parameter-not-updated", 0, "emb has no gradient on any rank and did not change");
  OtherRun moves = b;
  moves.at_end = on_each([](RankOfStep& rank) { rank.parameters[0].values[0] += 0.5F; });
  expect(of_world(1), moves, "unexplained", 0);
  const std::string roles = R"({"parameters": [{"prefix": "w", "role": "row encoder"}, {"prefix": "b", "role": "candidate encoder"}, {"prefix": "emb", "role": "temperature"}]})";
  b.declared = roles;
  expect(of_world(1, roles), b, "temperature-detached", 0, "no gradient of emb");
}

TEST_F(MistakesOfAnyTrainer, AStepThatReducesNothingHasNoReducedGradient) {
  OtherRun a = of_world(1), b = of_world(2);
  b.before_reduction = on_each([](RankOfStep& rank) { rank.calls = {"all_gather", "all_gather", "reduce_scatter"}; });
  expect_quiet(a, b);
  OtherRun left = b;
  left.before_update = from(2, on_each([](RankOfStep& rank) {
    rank.local.clear(), rank.reduced.clear(), rank.applied.clear(), rank.calls.pop_back();
    rank.updates = 2;
  }));
  expect(a, left, "gradient-not-reduced", 2, "none of the 1 that reduce gradients");
  OtherRun lost = b;
  lost.at_end = from(2, on_each([](RankOfStep& rank) { rank.updates -= 1; }));
  expect(a, lost, "optimizer-counter-lost", 2);
}

TEST_F(MistakesOfAnyTrainer, OfASumRanksAreCountedAndClippedAsOfAMean) {
  const char* const sum = R"({"gradient_reduction": "sum", "clip_norm": 0.03125})";
  OtherRun a = of_world(1, sum), b = of_world(3, sum);
  b.by_sum = true;
  a.clip = b.clip = 0.03125F;
  expect_quiet(a, b);
  OtherRun twice = b;
  twice.before_update = [](StepOfAll& step) {
    for (RankOfStep& rank : step.ranks) {
      for (std::size_t k = 0; k < rank.reduced.size(); ++k) {
        for (std::size_t i = 0; i < rank.reduced[k].values.size(); ++i) rank.reduced[k].values[i] += step.ranks[1].local[k].values[i];
      }
      rank.applied = scaled(rank.reduced, clip_of(0.03125F, rank.reduced));
    }
  };
  expect(a, twice, "rank-counted-twice", 0, "are the sum with rank 1's gradient added twice", 1);
  OtherRun own = b;
  own.clip = 0;
  own.before_update = [](StepOfAll& step) {
    Tensors sum_of = scaled(step.ranks[0].local, 0);
    for (const RankOfStep& rank : step.ranks) {
      const float factor = clip_of(0.03125F, rank.local);
      for (std::size_t k = 0; k < sum_of.size(); ++k) {
        for (std::size_t i = 0; i < sum_of[k].values.size(); ++i) sum_of[k].values[i] += factor * rank.local[k].values[i];
      }
    }
    for (RankOfStep& rank : step.ranks) rank.reduced = rank.applied = sum_of;
  };
  expect(a, own, "clip-before-reduction", 0, "were each clipped to");
}

TEST_F(MistakesOfAnyTrainer, OfRanksThatAreWrongInTheReductionOneIsTold) {
  OtherRun b = of_world(3);
  b.before_update = from(2, [](StepOfAll& step) {
    Tensors mean = scaled(step.ranks[0].local, 1.0F / 3);
    for (std::size_t k = 0; k < mean.size(); ++k) {
      for (std::size_t i = 0; i < mean[k].values.size(); ++i) mean[k].values[i] += step.ranks[1].local[k].values[i] / 3;
    }
    for (RankOfStep& rank : step.ranks) rank.reduced = rank.applied = mean;
  });
  expect(of_world(1), b, "rank-missing", 2, "without rank 2's gradient", 2);
}

/// Every rank's reduced gradient, made of all ranks' local ones.
Edit reduced_as(const std::function<Tensors(const StepOfAll&)>& made) {
  return [=](StepOfAll& step) {
    const Tensors all = made(step);
    for (RankOfStep& rank : step.ranks) rank.reduced = rank.applied = all;
  };
}

TEST_F(MistakesOfAnyTrainer, AnotherReductionIsToldByWhatItMakes) {
  OtherRun b = of_world(2);
  b.before_update = reduced_as([](const StepOfAll& step) { return scaled(step.ranks[0].reduced, 2.0F / kRows); });
  expect(of_world(1), b, "divided-by-wrong-world", 0, "was divided by");
  b.before_update = reduced_as([](const StepOfAll& step) { return scaled(step.ranks[0].reduced, 0.75F); });
  expect(of_world(1), b, "unexplained", 0);
  b.before_update = from(1, reduced_as([](const StepOfAll& step) { return step.ranks[1].local; }));
  expect(of_world(1), b, "rank-missing", 1, "the gradient of rank 1 alone");
  b.world = 3;
  expect(of_world(1), b, "rank-missing", 1, "the gradient of rank 1 alone");
}

TEST_F(MistakesOfAnyTrainer, ABufferOfTheStepBeforeInAnotherOrderIsStale) {
  const auto turned = [](bool stale) {
    return [stale, before = Tensors()](StepOfAll& step) mutable {
      Tensors taken = stale ? before : step.ranks[0].reduced;
      before = step.ranks[0].reduced;
      if (step.step < 1) return;
      std::swap(taken[0].values[0], taken[1].values[1]);
      std::swap(taken[0].values[3], taken[2].values[1]);
      for (RankOfStep& rank : step.ranks) rank.reduced = rank.applied = taken;
    };
  };
  OtherRun b = of_world(2);
  b.before_update = turned(true);
  expect(of_world(1), b, "stale-gradient", 1, "in other places");
  b.before_update = turned(false);
  const Mechanism found = compare(of_world(1), b);
  ASSERT_TRUE(found.cause);
  EXPECT_NE(found.cause->code, "stale-gradient") << found.cause->evidence;
}

TEST_F(MistakesOfAnyTrainer, OfRanksThatHoldTheWholeGradientTheLargestIsNoReduction) {
  OtherRun b = of_world(2);
  const auto copies = [](float factor) {
    return [factor](StepOfAll& step) {
      const Tensors whole = step.ranks[0].reduced;
      for (RankOfStep& rank : step.ranks) rank.local = whole, rank.reduced = rank.applied = scaled(whole, factor);
    };
  };
  b.before_update = copies(1);
  expect_quiet(of_world(1), b);
  b.before_update = copies(0.5F);
  expect(of_world(1), b, "gradient-over-world", 0, "that every rank has by itself");
}

TEST_F(MistakesOfAnyTrainer, ATensorThatTheLastMicroStepAloneReachesWasNotReduced) {
  OtherRun b = of_world(3, R"({"accumulation": 2})");
  b.before_update = [](StepOfAll& step) {
    for (RankOfStep& rank : step.ranks) {
      for (const Tensor& each : rank.local) {
        rank.parts.push_back({"micro 0/" + each.name, scaled({each}, each.name == "emb" ? 0 : 0.5F)[0].values});
        rank.parts.push_back({"micro 1/" + each.name, scaled({each}, each.name == "emb" ? 1 : 0.5F)[0].values});
      }
    }
  };
  expect_quiet(of_world(1), b);
  OtherRun bare = b;
  bare.before_update = [=](StepOfAll& step) {
    b.before_update(step);
    for (RankOfStep& rank : step.ranks) rank.reduced[0] = rank.applied[0] = rank.local[0];
  };
  expect(of_world(1), bare, "parameter-not-reduced", 0);
}

// --- clipping ---

TEST_F(MistakesOfAnyTrainer, RanksThatClipByTheirOwnNormsAreTold) {
  OtherRun a = of_world(1, R"({"clip_norm": 0.03125})"), b = of_world(3, R"({"clip_norm": 0.03125})");
  a.clip = b.clip = 0.03125F;
  b.before_update = on_each([](RankOfStep& rank) { rank.applied = scaled(rank.reduced, clip_of(0.03125F, rank.local)); });
  expect(a, b, "clip-on-local-norm", 0, "by the norm of its own local gradients");
  b.declared = "{}";  // without the limit the ranks' factors tell it
  expect(a, b, "clip-on-local-norm", 0, "by the norm of its own local gradients");
  b.before_update = on_each([factor = 0.5F](RankOfStep& rank) mutable { rank.applied = scaled(rank.reduced, factor /= 2); });
  const Mechanism other = compare(a, b);
  ASSERT_TRUE(other.cause);
  EXPECT_NE(other.cause->code, "clip-on-local-norm") << other.cause->evidence;
}

TEST_F(MistakesOfAnyTrainer, ClippingAfterEachMicroStepIsBeforeTheReduction) {
  const std::string limit = R"({"clip_norm": 0.03125})";
  OtherRun a = of_world(1, limit), b = of_world(2, R"({"clip_norm": 0.03125, "accumulation": 2})");
  a.clip = b.clip = 0.03125F;
  const auto micro_steps = [](float factor, bool by_norm) {
    return on_each([=](RankOfStep& rank) {
      const Tensors half = scaled(rank.local, 0.5F);
      const Tensors first = scaled(half, by_norm ? clip_of(0.03125F, half) : factor);
      for (std::size_t k = 0; k < half.size(); ++k) {
        rank.parts.push_back({"micro 0/" + half[k].name, half[k].values});
        rank.parts.push_back({"micro 1/" + half[k].name, half[k].values});
        for (std::size_t i = 0; i < half[k].values.size(); ++i)
          rank.local[k].values[i] = first[k].values[i] + half[k].values[i];
      }
    });
  };
  b.before_reduction = micro_steps(1, false);
  expect_quiet(a, b);
  b.before_reduction = micro_steps(1, true);
  expect(a, b, "clip-before-reduction", 0, "after every micro-step");
  b.before_reduction = micro_steps(0.25F, false);
  const Mechanism found = compare(a, b);
  ASSERT_TRUE(found.cause);
  EXPECT_NE(found.cause->code, "clip-before-reduction") << found.cause->evidence;
}

TEST_F(MistakesOfAnyTrainer, GradientsThatAreNotClippedMayBeSoByEachRanksOwnNorm) {
  OtherRun a = of_world(1, R"({"clip_norm": 0.05})"), b = of_world(3, R"({"gradient_reduction": "sum"})");
  a.clip = 0.05F;
  b.by_sum = true;
  expect(a, b, "unexplained", 0, "clip-missing and clip-on-local-norm fit equally well");
  a.clip = 0.0078125F;  // that of every rank is above this
  a.declared = R"({"clip_norm": 0.0078125})";
  expect(a, b, "clip-missing", 0);
}

TEST_F(MistakesOfAnyTrainer, RanksThatClipTensorsOfTheirOwnAreTold) {
  OtherRun a = of_world(1, R"({"clip_norm": 0.03125})"), b = of_world(2, R"({"clip_norm": 0.03125})");
  a.clip = b.clip = 0.03125F;
  const auto parted = [](float limit) {
    return [limit](StepOfAll& step) {
      for (std::size_t rank = 0; rank < 2; ++rank) {
        Tensors own = step.ranks[rank].applied = step.ranks[rank].reduced;
        std::erase_if(own, [&](const Tensor& each) { return (rank == 0) != (each.name == "w"); });
        for (const Tensor& each : scaled(own, clip_of(limit, own)))
          *std::ranges::find(step.ranks[rank].applied, each.name, &Tensor::name) = each;
      }
    };
  };
  b.before_update = parted(0.03125F);
  expect(a, b, "norm-of-own-shard", 0, "by the norm of these alone");
  b.before_update = parted(0.015625F);  // another limit: they may be anything
  const Mechanism found = compare(a, b);
  EXPECT_TRUE(!found.cause || found.cause->code != "norm-of-own-shard") << found.sentence;
}

// --- buffers, precision, settings ---

TEST_F(MistakesOfAnyTrainer, StatisticsThatMoveOnEachRankAreThoseOfItsOwnRows) {
  const auto statistics = [](bool moves) {
    return [moves](StepOfAll& step) {
      for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
        const float value = moves && step.step >= 2 ? 1.5F + static_cast<float>(rank) / 4 : 1;
        step.ranks[rank].parameters.push_back({"buffer/1.running_mean", {value, value}});
      }
    };
  };
  OtherRun a = of_world(1), b = of_world(3);
  a.at_end = b.at_end = statistics(false);
  expect_quiet(a, b);
  b.at_end = statistics(true);
  b.before_reduction = from(2, on_each([](RankOfStep& rank) { rank.loss += 0.25, rank.local[1].values[2] += 0.5F; }));
  const Mechanism found = compare(a, b);
  ASSERT_THAT(found, parts_at({.step = 2, .cause = "batch-norm-local"}));
}

TEST_F(MistakesOfAnyTrainer, AnotherPrecisionIsNamedWhereBothDeclareOne) {
  OtherRun a = of_world(1, R"({"precision": "bfloat16"})"), b = of_world(1, R"({"precision": "float32"})");
  b.before_reduction = on_each([](RankOfStep& rank) {
    rank.loss *= 1.0002;
    rank.local[0].values[0] += 0.01F;
  });
  expect(a, b, "precision-differs", 0, "bfloat16 and float32");
  b.declared = "{}";
  expect(a, b, "unexplained", 0);
}

TEST_F(MistakesOfAnyTrainer, AnUpdateThatAClosedFormExplainsIsNamedByIt) {
  OtherRun a = of_world(1, R"({"optimizer": {"name": "sgd", "weight_decay": 0.25}})"), b = of_world(2, R"({"optimizer": {"name": "sgd", "weight_decay": 0}})");
  a.before_update = b.before_update = [](StepOfAll&) {};
  // The decay of what the step before left: weights at step 0 are those of the beginning.
  a.at_end = [](StepOfAll& step) {
    static thread_local Tensors before;
    if (step.step == 0) before = initial();
    for (std::size_t k = 0; k < before.size(); ++k) {
      for (std::size_t i = 0; i < before[k].values.size(); ++i) step.ranks[0].parameters[k].values[i] -= 0.125F * 0.25F * before[k].values[i];
    }
    before = step.ranks[0].parameters;
  };
  expect(a, b, "weight-decay-missing", 0, "the configs differ in weight_decay 0.25 / 0");
}

/// A momentum's moments, and parameters that move by them; from step `anew` on without those before.
Edit momentum(int64_t anew, float kept = 0) {
  return [=, moments = Tensors(), weights = Tensors()](StepOfAll& step) mutable {
    if (step.step == 0) moments = scaled(initial(), 0), weights = initial();
    moments = scaled(moments, step.step == anew ? kept : 0.5F);
    for (std::size_t k = 0; k < moments.size(); ++k) {
      for (std::size_t i = 0; i < moments[k].values.size(); ++i) {
        moments[k].values[i] += step.ranks[0].applied[k].values[i];
        weights[k].values[i] -= 0.125F * moments[k].values[i];
      }
    }
    for (RankOfStep& rank : step.ranks) {
      rank.parameters = weights;
      rank.state.clear();
      for (const Tensor& each : moments) rank.state.push_back({"first_moment/" + each.name, each.values});
    }
  };
}

TEST_F(MistakesOfAnyTrainer, MomentsOfOneGradientAreThoseOfANewOptimizer) {
  OtherRun a = of_world(1), b = of_world(1);
  a.at_end = b.at_end = momentum(-1);
  expect_quiet(a, b);
  b.at_end = momentum(2);
  expect(a, b, "optimizer-state-lost", 2, "hold this step's gradient alone");
  b.at_end = momentum(2, 0.25F);
  const Mechanism found = compare(a, b);
  ASSERT_TRUE(found.cause);
  EXPECT_NE(found.cause->code, "optimizer-state-lost") << found.cause->evidence;
}

// --- resumed runs ---

TEST_F(MistakesOfAnyTrainer, ARunThatIsResumedWithOlderWeightsPartsThere) {
  OtherRun a = of_world(1), b = of_world(2);
  a.steps = 6;
  b.first = 3;
  b.steps = 3;
  expect_quiet(a, b);
  OtherRun rounded = b;
  rounded.weights = [](Tensors& own) { own[0].values[0] = std::nextafter(own[0].values[0], 0.0F); };
  expect_quiet(a, rounded);
  OtherRun old = b;
  old.weights = [&](Tensors& own) {
    std::vector<Tensors> again{initial()};
    for (int64_t step = 0; step < 2; ++step) step_of(of_world(1), step, again);
    own = again[0];
  };
  const Mechanism found = compare(a, old);
  ASSERT_THAT(found, parts_at({.step = 3, .phase = "snapshot"}));
  EXPECT_THAT(found.sentence, HasSubstr("from those of step 2"));
  ASSERT_THAT(found, parts_at({.cause = "initial-weights-differ"}));
  EXPECT_THAT(found.cause->evidence, HasSubstr("begins step 3 with the weights of step 2"));
  OtherRun elsewhere = b;
  elsewhere.weights = [](Tensors& own) { own[0].values[0] += 3; };  // near no step
  EXPECT_THAT(compare(a, elsewhere).sentence, testing::Not(HasSubstr("from those of step")));
}

}  // namespace
}  // namespace lockstep
