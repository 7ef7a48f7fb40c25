// An update that ranks share: the bits of real ranks are those of emulated ones, and those of an update that every rank makes whole.

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "harness/verdict/compare/compare.h"
#include "harness/verdict/trace/rank_result.h"
#include "harness/verdict/trace/reader.h"
#include "scenarios/classify/config.h"
#include "scenarios/classify/spec.h"
#include "scenarios/energy/config.h"
#include "tests/support/mini_run.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

class ShardedUpdate : public testing::Test {
 protected:
  static RunConfig of_energy(Layout layout, OptimizerKind optimizer) {
    RunConfig config = mini_config();
    config.layout = layout;
    config.data.series = 24;
    config.steps = 6;
    config.bucket_cap_bytes = 16384;  // several buckets
    set_optimizer(config, optimizer);
    return config;
  }
  static RunConfig of_classify(Layout layout, OptimizerKind optimizer) {
    RunConfig config(classify_spec());
    config.data.source = DataSource::synthetic;
    config.data.series = 12;
    config.data.series_steps = 40;
    config.layout = layout;
    config.rows = RowPartition::unequal;
    config.accumulation = 2;
    config.steps = 6;
    config.eval_every = 0;
    classify(config).data = {3, 10, 4, 1};
    classify(config).auxiliary.weight = 0.3;
    set_optimizer(config, optimizer);
    return config;
  }
  static void set_optimizer(RunConfig& config, OptimizerKind optimizer) {
    config.optimizer = optimizer;
    config.lr = optimizer == OptimizerKind::sgd ? 0.05 : 1e-3;
    config.momentum = optimizer == OptimizerKind::sgd ? 0.9 : 0.0;
    config.weight_decay = 0.01;
  }

  std::string run(const std::string& id, const RunConfig& config) { return mini_run(folder_.path(), id, config); }
  static RankResult result_of(const std::string& run, int rank = 0) {
    return read_rank_result(run + "/rank-" + std::to_string(rank) + ".result.json");
  }

  TempFolder folder_;
};

TEST_F(ShardedUpdate, GivesTheParametersOfTheWholeOneBitForBit) {
  int number = 0;
  for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw}) {
    for (const Layout layout : {Layout{2, 4}, Layout{3, 2}, Layout{8, 3}}) {
      for (RunConfig config : {of_energy(layout, optimizer), of_classify(layout, optimizer)}) {
        const std::string name = std::to_string(++number);
        const std::string whole = run("whole" + name, config);
        config.update = UpdatePartition::sharded;
        const std::string sharded = run("sharded" + name, config);
        for (int rank = 0; rank < layout.world_size; ++rank) {
          EXPECT_EQ(result_of(sharded, rank).parameters_hash, result_of(whole).parameters_hash)
              << config.trainer << ", " << layout.world_size << " ranks, optimizer " << static_cast<int>(optimizer);
        }
      }
    }
  }
}

TEST_F(ShardedUpdate, ComesOutOtherwiseWhicheverRanksPartIsCorrupted) {
  RunConfig config = of_energy({3, 2}, OptimizerKind::adam);
  config.update = UpdatePartition::sharded;
  const std::string whole = result_of(run("whole", config)).parameters_hash;
  config.mutant.name = "weight_flip";
  config.mutant.tensor = "energy_head.key.weight";
  config.mutant.bit = 20;
  config.mutant.step = 1;
  for (int rank = 0; rank < 3; ++rank) {
    config.mutant.rank = rank;
    EXPECT_NE(result_of(run("flip" + std::to_string(rank), config), rank).parameters_hash, whole) << rank;
  }
}

TEST_F(ShardedUpdate, OfRealRanksHasTheBitsOfEmulatedOnes) {
  for (RunConfig config : {of_energy({3, 2}, OptimizerKind::adam), of_classify({5, 3}, OptimizerKind::sgd)}) {
    config.update = UpdatePartition::sharded;
    config.clip_norm = 0.05;
    config.average_decay = 0.9;
    config.trace = TraceLevel::stats;
    CompareOptions options;
    options.run_a = run("emulated" + config.trainer, config);
    config.backend = Backend::gloo;
    options.run_b = run("real" + config.trainer, config);
    const Mechanism result = compare_traces(options).mechanism;
    EXPECT_EQ(result.verdict, VerdictKind::identical) << result.sentence;
    EXPECT_GE(result.compared_steps, config.steps);
  }
}

TEST_F(ShardedUpdate, StandsInTheTraceAsPartsAndCollectives) {
  RunConfig config = of_energy({3, 2}, OptimizerKind::adam);
  config.update = UpdatePartition::sharded;
  config.trace = TraceLevel::full;
  const std::string dir = run("traced", config);
  std::map<std::string, int64_t> rows, wholes;
  for (int rank = 0; rank < 3; ++rank) {
    const Trace trace = read_trace(dir + "/rank-" + std::to_string(rank) + ".trace");
    std::set<std::string> collectives;
    for (const Record& record : trace.steps.back().records) {
      if (record.phase == Phase::collective) collectives.insert(record.collective.op + " " + record.collective.group);
      if (record.phase != Phase::reduced_gradients && record.phase != Phase::optimizer_state) continue;
      if (record.name == "updates") continue;
      ASSERT_NE(record.placement, nullptr) << record.name;
      if (!record.placement->shard) continue;
      rows[record.name] += record.shape.at(0);
      EXPECT_LE(rows.at(record.name), record.placement->whole.at(0)) << record.name;
      wholes[record.name] = record.placement->whole.at(0);
    }
    EXPECT_TRUE(collectives.contains("reduce_scatter gradients"));
    EXPECT_TRUE(collectives.contains("all_gather data"));
    EXPECT_FALSE(collectives.contains("reduce_gradients gradients"));
  }
  EXPECT_EQ(rows, wholes) << "all ranks' parts are the whole";
  EXPECT_TRUE(rows.contains("energy_head.key.weight"));
  EXPECT_TRUE(rows.contains("first_moment/energy_head.key.weight"));
  EXPECT_FALSE(rows.contains("temperature.log_tau")) << "a number has no rows to share";
}

TEST_F(ShardedUpdate, IsClippedByTheNormOfTheWholeGradient) {
  RunConfig config = of_energy({3, 2}, OptimizerKind::sgd);
  config.clip_norm = 0.01;
  const RankResult whole = result_of(run("whole", config));
  config.update = UpdatePartition::sharded;
  const RankResult sharded = result_of(run("sharded", config));
  const std::vector<double>& expected = whole.curves.at("gradient_norm").values;
  const std::vector<double>& found = sharded.curves.at("gradient_norm").values;
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < found.size(); ++step) {
    EXPECT_GT(expected[step], config.clip_norm) << "else nothing is clipped";
    EXPECT_NEAR(found[step], expected[step], 1e-5 * expected[step]) << "step " << step;
  }
}

TEST_F(ShardedUpdate, ResumesFromASnapshotOfItsOwnAndOfAWholeOne) {
  for (const bool from_sharded : {true, false}) {
    // Of two ranks: a run that begins again has other buckets at its first step, and more ranks would add in another order.
    RunConfig config = of_energy({2, 4}, OptimizerKind::adam);
    config.snapshot_steps = {3};
    config.update = from_sharded ? UpdatePartition::sharded : UpdatePartition::whole;
    const std::string id = from_sharded ? "first_sharded" : "first_whole";
    const std::string first = run(id, config);
    config.snapshot_steps = {};
    config.update = UpdatePartition::sharded;
    config.resume_from = id;
    config.resume_step = 3;
    EXPECT_EQ(result_of(run("resumed_" + id, config)).parameters_hash, result_of(first).parameters_hash);
  }
}

}  // namespace
}  // namespace lockstep
