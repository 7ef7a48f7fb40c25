#include "harness/verdict/config/canonical.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {
namespace {

TEST(ConfigDifferences, AreThoseThatCanChangeWhatIsTrained) {
  const RunConfig reference;
  RunConfig cell = reference;
  cell.layout = {8, 3};
  cell.backend = Backend::gloo;
  cell.trace = TraceLevel::full;
  cell.eval_every = 3;
  cell.bucket_cap_bytes = 1000;
  cell.checkpoint.every = 5;
  cell.watch.comm_check = true;
  cell.forced.from = "some-run";
  cell.mutant.name = "grad_scale";
  cell.stop_after = 4;
  EXPECT_THAT(config_differences(reference, cell), testing::IsEmpty());

  cell.weight_decay = 0.1;
  cell.optimizer = OptimizerKind::sgd;
  cell.data.shuffle = false;
  const std::vector<std::string> declared{"optimizer"};
  const auto found = config_differences(reference, cell, declared);
  EXPECT_EQ(differences_text(found), "data.shuffle true / false, optimizer adam / sgd, weight_decay 0 / 0.1");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_FALSE(found[0].declared);
  EXPECT_TRUE(found[1].declared);
}

TEST(ConfigDifferences, KnowAnotherNumberOfRowsAnotherSeedAndAnotherTrainer) {
  const RunConfig reference;
  RunConfig cell = reference;
  cell.layout = {8, 24};
  cell.seed = 1;
  EXPECT_EQ(differences_text(config_differences(reference, cell)), "layout 1x24 / 8x24, seed 0 / 1");
  const RunConfig other(*trainer_specs().back());
  ASSERT_NE(other.trainer, reference.trainer);
  EXPECT_EQ(differences_text(config_differences(reference, other)), "trainer " + reference.trainer + " / " + other.trainer);
}

TEST(ConfigDifferences, AreNoneOfAReferenceThatIsDerivedFromItsCell) {
  RunConfig reference, cell;
  reference.oracle_world = 8;
  reference.accumulation = 2;
  EXPECT_THAT(config_differences(reference, cell), testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep
