#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/record.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"
#include "scenarios/causes.h"
#include "scenarios/classify/spec.h"
#include "scenarios/energy/spec.h"
#include "scenarios/flow_rl/config.h"
#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "tests/support/mini_run.h"

// Every planted bug, run among three small ranks: it shows first where the table says, and not before its
// step.

namespace lockstep {
namespace {

using Values = std::map<std::string, std::vector<double>>;

/// What all ranks wrote in one step, as two layouts could be compared: by phase, then by name.
struct WholeStep {
  std::map<Phase, Values> values;
};

std::vector<double> halves(uint64_t hash) {
  return {static_cast<double>(hash >> 32), static_cast<double>(hash & 0xFFFFFFFFU)};
}

void add(std::vector<double>& sum, const std::vector<double>& values) {
  sum.resize(std::max(sum.size(), values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum[i] += values[i];
  }
}

void add_collective(const Record& record, const std::string& rank, std::map<std::string, int>& count,
                    Values& values) {
  const CollectiveRecord& it = record.collective;
  if (it.group == "gradients") {
    values["buckets" + rank].push_back(1);  // their content is compared as gradients
    return;
  }
  const auto turn = static_cast<double>(values["order" + rank].size());
  values["order" + rank].push_back(static_cast<double>(std::hash<std::string>{}(record.name) >> 16));
  std::vector<double>& one = values[record.name + rank + "#" + std::to_string(count[record.name]++)];
  one = halves(it.hash_out);
  add(one, {0, 0, static_cast<double>(it.root), static_cast<double>(it.dtype), turn,
            static_cast<double>(it.reduction.size() + (it.reduction == "max" ? 100 : 0))});
}

std::map<int64_t, WholeStep> read_run(const std::string& dir, int world) {
  std::map<int64_t, WholeStep> steps;
  for (int r = 0; r < world; ++r) {
    const Trace trace = read_trace(dir + "/rank-" + std::to_string(r) + ".trace");
    const std::string rank = ", rank " + std::to_string(r);
    for (const StepRecords& step : trace.steps) {
      std::map<std::string, int> count;
      for (const Record& record : step.records) {
        Values& values = steps[step.step].values[record.phase];
        switch (record.phase) {
          case Phase::samples:
            values["ids" + rank].assign(record.ids.begin(), record.ids.end());
            break;
          case Phase::random:
            add(values[record.name], halves(record.stats.hash));
            add(values[record.name], {0, 0, record.value});
            break;
          case Phase::scores:
            values[record.name + rank] = values_of(record).value_or(std::vector<double>{});
            break;
          case Phase::loss:
            if (record.name == "loss") add(values["loss"], {record.value / world});
            break;
          case Phase::local_gradients: {
            std::vector<double> mean = values_of(record).value_or(std::vector<double>{});
            for (double& value : mean) value /= world;
            add(values[record.name], mean);
            break;
          }
          case Phase::collective:
            add_collective(record, rank, count, values);
            break;
          case Phase::control:
          case Phase::gradient_norm:
            values[record.name + rank] = record.is_scalar ? std::vector{record.value} : halves(record.stats.hash);
            break;
          case Phase::reduced_gradients:
          case Phase::parameters:
          case Phase::averaged_weights:
            values[record.name + rank] = halves(record.stats.hash);
            break;
          default:
            break;
        }
      }
    }
  }
  return steps;
}

bool differ(Phase phase, const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return true;
  // What another order of sums may change is no difference.
  const bool rounded = phase == Phase::scores || phase == Phase::loss || phase == Phase::local_gradients;
  double largest = 1e-2;
  for (const double value : a) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (rounded ? !(std::abs(a[i] - b[i]) <= 1e-5 * largest) : a[i] != b[i]) return true;
  }
  return false;
}

struct Difference {
  int64_t step = 0;
  Phase phase = Phase::samples;
  std::set<std::string> names;
};

std::optional<Difference> first_difference(const std::map<int64_t, WholeStep>& a,
                                           const std::map<int64_t, WholeStep>& b) {
  for (const auto& [step, expected] : a) {
    const auto other = b.find(step);
    if (other == b.end()) return Difference{step, Phase::snapshot, {"missing"}};
    for (const Phase phase : phases_in_order()) {
      const auto in = [phase](const WholeStep& whole) {
        const auto found = whole.values.find(phase);
        return found == whole.values.end() ? Values{} : found->second;
      };
      const Values x = in(expected), y = in(other->second);
      std::set<std::string> names;
      for (const auto& [name, values] : x) {
        const auto found = y.find(name);
        if (found == y.end() || differ(phase, values, found->second)) names.insert(name);
      }
      for (const auto& [name, values] : y) {
        if (x.find(name) == x.end()) names.insert(name);
      }
      if (!names.empty()) return Difference{step, phase, names};
    }
  }
  return std::nullopt;
}

RunConfig small_config() {
  RunConfig config = mini_config();
  config.steps = 5;
  config.trace = TraceLevel::full;
  energy(config).model.width = 8;
  energy(config).model.hidden = 16;
  return config;
}

RunConfig small_classifier() {
  RunConfig config(classify_spec());
  config.data.source = DataSource::synthetic;
  config.data.series = 12;
  config.data.series_steps = 40;
  config.layout = {3, 2};
  config.steps = 5;
  config.seed = 1;
  config.eval_every = 0;
  config.trace = TraceLevel::full;
  classify(config).data = {3, 10, 4, 1};
  classify(config).model.width = 6;
  classify(config).model.hidden = 8;
  return config;
}

/// A run into which a bug reaches.
RunConfig small_config_for(const MutantEntry& entry) {
  if (entry.trainer == "classify") return small_classifier();
  if (entry.trainer != "flow_rl") return small_config();
  RunConfig config(flow_rl_spec());
  config.layout = {3, 2};
  config.steps = 5;
  config.seed = 1;
  config.eval_every = 0;
  config.trace = TraceLevel::full;
  FlowRlConfig& own = flow_rl(config);
  own.tasks = "reach";
  own.group = 3;
  own.policy.hidden = 8;
  own.clone = {.steps = 10, .success = 1, .episodes = 4};
  own.episodes = 60;
  return config;
}

RunConfig with(const RunConfig& config, std::string_view settings) {
  nlohmann::json json = nlohmann::json::parse(canonical_json(config));
  std::istringstream words{std::string(settings)};
  for (std::string word; words >> word;) {
    std::string key = word.substr(0, word.find('='));
    const std::string value = word.substr(key.size() + 1);
    nlohmann::json* place = &json;
    for (std::size_t dot; (dot = key.find('.')) != std::string::npos; key = key.substr(dot + 1)) {
      place = &(*place)[key.substr(0, dot)];
    }
    const nlohmann::json parsed = nlohmann::json::parse(value, nullptr, false);
    (*place)[key] = parsed.is_discarded() ? nlohmann::json(value) : parsed;
  }
  return run_config_from_json(json.dump(), std::string(settings));
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream{std::string(text)};
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

/// Keys of the faults that changed something on any rank.
std::set<std::string> acted_in(const std::string& dir, int world) {
  std::set<std::string> keys;
  for (int rank = 0; rank < world; ++rank) {
    const RankResult result = result_of(dir, rank);
    keys.insert(result.faults_acted.begin(), result.faults_acted.end());
  }
  return keys;
}

constexpr const char* kTensor = "energy_head.key.weight";

class Mutants : public testing::Test {
 protected:
  const std::map<int64_t, WholeStep>& clean(const RunConfig& config) {
    const std::string id = config_hash(config);
    if (clean_.find(id) == clean_.end()) {
      clean_[id] = read_run(mini_run(root_.path(), id, config), config.layout.world_size);
    }
    return clean_.at(id);
  }

  RunConfig planted(const MutantEntry& entry, RunConfig config) {
    config.mutant.name = entry.name;
    config.mutant.step = std::min<int64_t>(entry.at_epoch ? 1 : 2, entry.last_step);
    config.mutant.rank = entry.draws.rank ? 1 : -1;
    config.mutant.tensor = entry.draws.tensor ? kTensor : "";
    config.mutant.factor = entry.draws.factor ? 1.001 : 1.0;
    return config;
  }

  TempFolder root_;
  std::map<std::string, std::map<int64_t, WholeStep>> clean_;
};

TEST_F(Mutants, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const MutantEntry& entry : mutant_entries()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " stands in the tables twice";
  }
  EXPECT_GE(names.size(), 91U);
}

TEST_F(Mutants, ACleanTwinIsEqualInEveryBit) {
  const RunConfig config = small_config();
  const auto again = read_run(mini_run(root_.path(), "again", config), config.layout.world_size);
  EXPECT_FALSE(first_difference(clean(config), again).has_value());
}

TEST_F(Mutants, ShowFirstWhereTheTableSays) {
  for (const MutantEntry& entry : mutant_entries()) {
    if (entry.phase == "failed") continue;
    SCOPED_TRACE(entry.name);
    RunConfig config = with(small_config_for(entry), entry.settings);
    if (entry.at_epoch) config.data.series = 4;  // three steps an epoch
    const RunConfig wrong = planted(entry, config);
    const auto run =
        read_run(mini_run(root_.path(), std::string(entry.name), wrong), config.layout.world_size);
    EXPECT_EQ(acted_in(root_.path() + "/" + std::string(entry.name), config.layout.world_size),
              std::set<std::string>{"mutant"});
    const std::optional<Difference> difference = first_difference(clean(config), run);
    if (!difference) {
      ADD_FAILURE() << entry.name << " is not seen";
      continue;
    }
    EXPECT_EQ(difference->step, entry.at_epoch ? 3 : wrong.mutant.step + entry.step_offset);
    const std::vector<std::string> phases = split(entry.phase, '|');
    EXPECT_NE(std::find(phases.begin(), phases.end(), name_of(difference->phase)), phases.end())
        << name_of(difference->phase) << " of " << *difference->names.begin();
    bool named = entry.where.empty();
    for (std::string where : split(entry.where, '|')) {
      where = where == "$tensor" ? kTensor : where;
      for (const std::string& name : difference->names) named = named || name.starts_with(where);
    }
    EXPECT_TRUE(named) << "not " << entry.where << " but " << *difference->names.begin();
  }
}

TEST(MutantsOfArithmetic, AreNotPlantedInAFloat64Twin) {
  int arithmetic = 0;
  for (const MutantEntry& entry : mutant_entries()) {
    if (!entry.arithmetic) continue;
    ++arithmetic;
    RunConfig run;
    run.mutant.name = std::string(entry.name);
    EXPECT_NE(make_mutant(run, 0), nullptr) << entry.name;
    run.forced.twin = true;
    EXPECT_EQ(make_mutant(run, 0), nullptr) << entry.name;
    run.second_mutant.name = "sign_flipped";
    EXPECT_NE(make_mutant(run, 0), nullptr) << "a bug of meaning beside it is";
  }
  EXPECT_GE(arithmetic, 6);
}

TEST_F(Mutants, EndTheRunOnEveryRankWithANamedError) {
  const std::map<std::string, std::string> expected{
      {"gather_shape", "rank 1"}, {"gather_dtype", "rank 1"}, {"gather_step", "rank 1"}};
  for (const auto& [name, words] : expected) {
    SCOPED_TRACE(name);
    const RunConfig config = planted(*find_mutant(name), small_config());
    for (const int status : mini_run_statuses(root_.path(), name, config)) {
      EXPECT_NE(status, 0);
    }
    for (int rank = 0; rank < config.layout.world_size; ++rank) {
      const RankResult result = result_of(root_ / name, rank);
      EXPECT_EQ(result.status, "failed");
      EXPECT_NE(result.error.find(rank == 1 ? "rank 0" : words), std::string::npos) << result.error;
      EXPECT_EQ(result.steps_done, 2);
    }
  }
}

TEST_F(Mutants, TwoActAtOnce) {
  RunConfig config = small_config();
  config.mutant.name = "gradient_over_world";
  config.mutant.step = 1;
  config.second_mutant.name = "same_noise";
  config.second_mutant.step = 3;
  const auto both = read_run(mini_run(root_.path(), "both", config), config.layout.world_size);
  config.second_mutant = {};
  const auto one = read_run(mini_run(root_.path(), "one", config), config.layout.world_size);
  const auto first = first_difference(clean(small_config()), both);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->step, 1);
  EXPECT_EQ(first->phase, Phase::local_gradients);
  const auto second = first_difference(one, both);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->step, 3);
  EXPECT_EQ(second->phase, Phase::random);
  EXPECT_EQ(acted_in(root_.path() + "/both", 3), (std::set<std::string>{"mutant", "second_mutant"}));
}

/// Appends its digit to every value; from step `end` on it neither clips nor updates, and streams lag.
class Link : public Mutant, public EnergyFault {
 public:
  Link(double more, int64_t end) : more_(more), end_(end) {}
  double learning_rate(int64_t /*step*/, double rate) override { return 10 * rate + more_; }
  double loss_factor(int64_t /*step*/) override { return more_; }
  double clip_norm(int64_t step, double total_norm) override { return step < end_ ? total_norm + more_ : -1; }
  bool updates(int64_t step) override {
    ++asked_;
    return step < end_;
  }
  int64_t stream_step(int64_t step) override { return step < end_ ? step : step - 1; }
  double dropout(int64_t /*step*/, double probability) override { return 10 * probability + more_; }
  int asked() const { return asked_; }

 private:
  double more_;
  int64_t end_;
  int asked_ = 0;
};

TEST(FaultsInARow, HandOnWhatEachReturnsHoweverManyThereAre) {
  std::vector<KeyedFault> links;
  std::vector<const Link*> seen;
  for (const int digit : {1, 2, 3}) {
    auto link = std::make_unique<Link>(digit, 5 + digit);
    seen.push_back(link.get());
    links.push_back({std::to_string(digit), std::move(link)});
  }
  const std::unique_ptr<Mutant> chain = in_a_row(std::move(links), small_config());
  EXPECT_TRUE(acted_faults(chain.get()).empty());
  EXPECT_EQ(chain->learning_rate(0, 0), 123);
  EXPECT_EQ(chain->loss_factor(0), 6);
  EXPECT_EQ(chain->clip_norm(0, 0), 6);
  EXPECT_EQ(chain->clip_norm(6, 1), -1) << "what the first one does not clip, no other clips";
  EXPECT_TRUE(chain->updates(5));
  EXPECT_FALSE(chain->updates(6));
  for (const Link* link : seen) {
    EXPECT_EQ(link->asked(), 2) << "each is asked, whatever the one before it said";
  }
  auto* inside = dynamic_cast<EnergyFault*>(chain.get());
  ASSERT_NE(inside, nullptr);
  EXPECT_EQ(inside->dropout(0, 0), 123);
  EXPECT_EQ(inside->stream_step(5), 5);
  EXPECT_EQ(inside->stream_step(8), 7) << "one step back, not three";
  EXPECT_EQ(acted_faults(chain.get()), (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_EQ(in_a_row({}, small_config()), nullptr);
}

TEST_F(Mutants, ThatChangeNothingAreKnownToHaveDoneNothing) {
  struct Idle {
    const char *name, *settings;
  };
  // What each needs is missing: its collective, its draws, its epoch, its schedule, a bound that is reached.
  const std::vector<Idle> idle{{"collective_missing", ""},
                               {"wrong_dtype", ""},
                               {"buffers_not_synchronised", ""},
                               {"stale_buffer", ""},
                               {"same_noise", "dropout=0 context_noise=0"},
                               {"noise_by_rank", "rank_seed=plus_rank"},
                               {"dropout_off", "dropout=0"},
                               {"dropout_not_replayed", "dropout=0.1"},
                               {"set_epoch_forgotten", ""},
                               {"schedule_shifted", "schedule=constant"},
                               {"clip_missing", "clip_norm=1000"},
                               {"weight_decay_twice", "weight_decay=0"},
                               {"decay_coupled", "optimizer=adamw weight_decay=0"},
                               {"optimizer_state_lost", "optimizer=sgd"},
                               {"context_mask_ignored", "data.min_context=16"},
                               {"low_precision_candidates", "precision=bfloat16"}};
  for (const auto& [name, settings] : idle) {
    SCOPED_TRACE(name);
    RunConfig config = with(small_config(), settings);
    config.mutant.name = name;
    config.mutant.step = 1;
    const std::string dir = mini_run(root_.path(), std::string("idle-") + name, config);
    EXPECT_TRUE(acted_in(dir, config.layout.world_size).empty());
    EXPECT_FALSE(first_difference(clean(with(small_config(), settings)), read_run(dir, 3)).has_value());
  }
}

TEST_F(Mutants, OfTwoTheOneThatNeverActsIsTold) {
  RunConfig config = small_config();
  config.mutant.name = "grad_scale";
  config.mutant.factor = 2;
  config.second_mutant.name = "collective_extra";  // there are no running statistics
  EXPECT_EQ(acted_in(mini_run(root_.path(), "one-of-two", config), 3), std::set<std::string>{"mutant"});
  std::swap(config.mutant, config.second_mutant);
  EXPECT_EQ(acted_in(mini_run(root_.path(), "other-of-two", config), 3),
            std::set<std::string>{"second_mutant"});
}

TEST_F(Mutants, TakeTheParametersThatTheTableSays) {
  for (const MutantEntry& entry : mutant_entries()) {
    if (entry.tensor == MutantTensor::none) continue;
    SCOPED_TRACE(entry.name);
    RunConfig config = planted(entry, with(small_config(), entry.settings));
    config.mutant.factor = 2;
    config.mutant.tensor = "energy_head";
    const std::string id = std::string(entry.name) + "-group";
    if (entry.tensor == MutantTensor::group) {
      EXPECT_FALSE(acted_in(mini_run(root_.path(), id, config), 3).empty()) << "it acts on a whole group";
    } else {
      const std::vector<int> ends = mini_run_statuses(root_.path(), id, config);
      const bool ended = std::any_of(ends.begin(), ends.end(), [](int status) { return status != 0; });
      EXPECT_TRUE(ended || acted_in(root_.path() + "/" + id, 3).empty()) << "it acts on one parameter alone";
    }
  }
}

// Whole runs of the trainer classify: emulated ranks against real ones, and verdicts with a fault in the loss or
// the normalisation and without.

struct Cell {
  Layout layout{1, 12};
  ClassifyConfig own;
  RowPartition rows = RowPartition::equal;
  int64_t accumulation = 1;
};

Cell cell_of(Layout layout) {
  Cell cell;
  cell.layout = layout;
  cell.own.data = {3, 10, 4, 1};
  cell.own.model.width = 6;
  cell.own.model.hidden = 8;
  return cell;
}

class ClassifyRuns : public OfMiniRuns {
 protected:
  static RunConfig config_of(const Cell& cell) {
    RunConfig config(classify_spec());
    config.data.source = DataSource::synthetic;
    config.data.series = std::max<int64_t>(8, cell.layout.global_batch() / 4);
    config.data.series_steps = 40;
    config.layout = cell.layout;
    config.rows = cell.rows;
    config.accumulation = cell.accumulation;
    config.steps = 4;
    config.eval_every = 2;
    classify(config) = cell.own;
    return config;
  }

  Comparison forced(const Cell& reference, const Cell& cell) {
    return MiniRuns::forced(config_of(reference), config_of(cell));
  }

  /// The codes that the trainer's own rules give.
  static std::vector<std::string> named(const Comparison& comparison) {
    std::vector<std::string> codes;
    for (const causes::Hypothesis& row : classify_cause_rules().hypotheses()) {
      if (!causes::holds(row.phases, comparison.around->difference.phase)) continue;
      if (const auto cause = row.predict(*comparison.around))
        codes.push_back(std::string(row.codes) + ": " + cause->evidence);
    }
    return codes;
  }

};

TEST_F(ClassifyRuns, RealRanksGiveTheBitsOfEmulatedOnes) {
  for (const NormKind norm : {NormKind::none, NormKind::batch, NormKind::sync_batch}) {
    Cell cell = cell_of({3, 4});
    cell.own.norm = norm;
    cell.rows = RowPartition::unequal;
    cell.accumulation = 2;
    const std::string name = std::to_string(static_cast<int>(norm));
    const RankResult rank_0 = result_of(run_emulated_and_real(name, config_of(cell)));
    EXPECT_TRUE(rank_0.metrics.contains("accuracy"));
    EXPECT_EQ(rank_0.curves.at("step_accuracy").values.size(), 2U);
  }
}

TEST_F(ClassifyRuns, RealRanksGiveTheBitsOfEmulatedOnesWithTwoLossesAndAveragesAndRecomputation) {
  Cell cell = cell_of({3, 4});
  cell.own.auxiliary.weight = 0.5;
  cell.own.activation_checkpointing = true;
  cell.accumulation = 2;
  RunConfig config = config_of(cell);
  config.average_decay = 0.9;
  config.trace = TraceLevel::stats;
  run_emulated_and_real("both", config);
}

TEST_F(ClassifyRuns, OfOneObjectiveAreWithinTheBand) {
  struct Row {
    const char* what;
    void (*both)(Cell& each);
    void (*cell)(Cell& cell);
  };
  const auto as_it_is = [](Cell&) {};
  const std::vector<Row> rows{
      {"a second loss", [](Cell& each) { each.own.auxiliary.weight = 0.5; },
       [](Cell& cell) {
         cell.accumulation = 2;
         cell.own.activation_checkpointing = true;
       }},
      {"a global denominator", as_it_is,
       [](Cell& cell) {
         cell.rows = RowPartition::one_empty;
         cell.accumulation = 2;
       }},
      {"shared statistics", [](Cell& each) { each.own.norm = NormKind::sync_batch; }, as_it_is},
      {"a mean of means of equal counts", [](Cell& each) { each.own.denominator.over = DenominatorOver::rows; },
       [](Cell& cell) { cell.own.denominator.scope = DenominatorScope::local; }}};
  for (const Row& row : rows) {
    Cell reference = cell_of({1, 12}), cell = cell_of({3, 4});
    for (Cell* each : {&reference, &cell}) row.both(*each);
    row.cell(cell);
    const Comparison found = forced(reference, cell);
    EXPECT_EQ(found.mechanism.verdict, VerdictKind::within_envelope) << row.what << ": " << found.mechanism.sentence;
  }
}

TEST_F(ClassifyRuns, WhatAStepIsMadeOfStandsInItsTrace) {
  Cell cell = cell_of({3, 4});
  cell.own.auxiliary.weight = 0.5;
  cell.accumulation = 2;
  RunConfig config = config_of(cell);
  config.trace = TraceLevel::full;
  const Trace trace = read_trace(run("traced", config) + "/rank-1.trace");
  const StepRecords& step = trace.steps.back();
  const auto find = [&](Phase phase, const std::string& name) -> const Record* {
    const auto at = std::ranges::find_if(step.records, [&](const Record& it) { return it.phase == phase && it.name == name; });
    return at == step.records.end() ? nullptr : &*at;
  };
  for (const char* name : {"inputs", "labels"}) {
    ASSERT_NE(find(Phase::inputs, name), nullptr) << name;
    EXPECT_EQ(find(Phase::inputs, name)->ids.size(), 4U);
  }
  double loss = 0;
  for (const std::string term : {"cross_entropy", "reconstruction"}) {
    ASSERT_NE(find(Phase::loss, "loss/" + term), nullptr);
    loss += find(Phase::loss, "weight/" + term)->value * find(Phase::loss, "loss/" + term)->value;
  }
  EXPECT_NEAR(find(Phase::loss, "loss")->value, loss, 1e-5);
  for (const char* name : {"micro_losses", "micro_counts", "micro_rows"}) {
    ASSERT_NE(find(Phase::loss, name), nullptr) << name;
    EXPECT_EQ(find(Phase::loss, name)->shape, std::vector<int64_t>{2});
  }
  EXPECT_EQ(find(Phase::loss, "row_counts")->shape, std::vector<int64_t>{4});
  const std::vector<double> whole = values_of(*find(Phase::local_gradients, "mixer.weight")).value();
  for (const auto& [one, other] : {std::pair("micro 0", "micro 1"), std::pair("loss cross_entropy", "loss reconstruction")}) {
    const Record* const a = find(Phase::gradient_parts, std::string(one) + "/mixer.weight");
    const Record* const b = find(Phase::gradient_parts, std::string(other) + "/mixer.weight");
    ASSERT_TRUE(a != nullptr && b != nullptr) << one;
    const std::vector<double> x = values_of(*a).value(), y = values_of(*b).value();
    double dot = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(x[i] + y[i], whole[i], 1e-6);
      dot += x[i] * whole[i];
    }
    EXPECT_NEAR(a->dot, dot, 1e-9 + 1e-6 * std::abs(dot));
  }
  EXPECT_EQ(find(Phase::gradient_parts, "loss reconstruction/classes.weight"), nullptr) << "it does not reach the classes";
}

TEST_F(ClassifyRuns, AnAverageOfTheWeightsFollowsThem) {
  RunConfig config = config_of(cell_of({3, 4}));
  config.average_decay = 0.75;
  config.trace = TraceLevel::full;
  const Trace trace = read_trace(run("averaged", config) + "/rank-0.trace");
  std::vector<double> expected;
  for (const StepRecords& step : trace.steps) {
    for (const Record& record : step.records) {
      if (record.name != "mixer.bias" || (record.phase != Phase::parameters && record.phase != Phase::averaged_weights)) continue;
      const std::vector<double> values = values_of(record).value();
      if (record.phase == Phase::parameters) {
        if (expected.empty()) expected = values;  // it begins as the weights do
        if (step.step < 0) continue;
        for (std::size_t i = 0; i < values.size(); ++i) expected[i] = 0.75 * expected[i] + 0.25 * values[i];
      } else {
        for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-6);
      }
    }
  }
  config.average_decay = 0;
  for (const StepRecords& step : read_trace(run("plain", config) + "/rank-0.trace").steps) {
    for (const Record& record : step.records) EXPECT_NE(record.phase, Phase::averaged_weights);
  }
}

TEST_F(ClassifyRuns, ManyRowsAreTakenInPartsOfOneStep) {
  constexpr int kRows = 264;  // more than a pass takes, and no multiple of it
  Cell reference = cell_of({1, kRows}), cell = cell_of({2, kRows / 2});
  for (Cell* each : {&reference, &cell}) each->own.dropout = 0.1;
  const Comparison found = forced(reference, cell);
  EXPECT_EQ(found.mechanism.verdict, VerdictKind::within_envelope) << found.mechanism.sentence;
  TraceReader trace(folder_.path() + "/forced_reference/rank-0.trace");
  const std::optional<StepRecords> step = trace.next();
  ASSERT_TRUE(step);
  int of_rows = 0;
  for (const Record& record : step->records) {
    if (record.name != "row_losses") continue;
    ++of_rows;
    EXPECT_EQ(record.shape, std::vector<int64_t>{kRows});
  }
  EXPECT_EQ(of_rows, 1);
}

TEST_F(ClassifyRuns, AMeanOfMeansIsNamedAtTheFirstStepOfUnequalCounts) {
  for (const DenominatorScope scope : {DenominatorScope::local, DenominatorScope::micro}) {
    for (const DenominatorOver over : {DenominatorOver::valid_steps, DenominatorOver::rows}) {
      Cell reference = cell_of({1, 12}), cell = cell_of({3, 4});
      cell.rows = RowPartition::unequal;
      cell.accumulation = 2;
      reference.own.denominator.over = over;
      cell.own.denominator = {over, scope};
      const Comparison found = forced(reference, cell);
      ASSERT_EQ(found.mechanism.verdict, VerdictKind::divergent) << found.mechanism.sentence;
      EXPECT_EQ(found.mechanism.first_divergence->phase, "loss");
      EXPECT_EQ(found.mechanism.first_divergence->step, 0);
      const std::vector<std::string> codes = named(found);
      ASSERT_EQ(codes.size(), 1U);
      EXPECT_TRUE(codes[0].starts_with("mean-of-means")) << codes[0];
      const char* what = over == DenominatorOver::rows ? "rows" : "valid time steps";
      // A rank's micro-steps have equally many rows: the mean of their means is its own mean.
      const bool micro = scope == DenominatorScope::micro && over != DenominatorOver::rows;
      const char* whose = micro ? "each micro-step's" : "each rank's";
      EXPECT_NE(codes[0].find(what), std::string::npos) << codes[0];
      EXPECT_NE(codes[0].find(whose), std::string::npos) << codes[0];
    }
  }
}

TEST_F(ClassifyRuns, ABatchNormOfOwnRowsIsNamed) {
  Cell reference = cell_of({1, 12}), cell = cell_of({3, 4});
  reference.own.norm = cell.own.norm = NormKind::batch;
  const Comparison found = forced(reference, cell);
  ASSERT_EQ(found.mechanism.verdict, VerdictKind::divergent) << found.mechanism.sentence;
  const auto cause = name_cause(*found.around);
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->code, "batch-norm-local") << cause->evidence;
}

TEST_F(ClassifyRuns, AnotherDenominatorIsNoMeanOfMeans) {
  Cell reference = cell_of({1, 12}), cell = cell_of({3, 4});
  cell.own.denominator.over = DenominatorOver::rows;
  const Comparison found = forced(reference, cell);
  ASSERT_EQ(found.mechanism.verdict, VerdictKind::divergent) << found.mechanism.sentence;
  EXPECT_TRUE(named(found).empty()) << named(found).front();
}

}  // namespace
}  // namespace lockstep
