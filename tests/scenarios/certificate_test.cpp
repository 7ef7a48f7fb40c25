// Every loss in every partitioning of rows, in float64 on emulated ranks, against the plain reference in one
// process.

#include "scenarios/energy/config.h"
#include "tests/support/certificate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "losses/loss.h"

namespace lockstep {
namespace {

using support::of_ranks;
using support::of_reference;
using support::small_config;
using support::StepGradients;
using support::StepSetting;
using support::worst_error;

constexpr double kExact = 1e-12;

// Twelve rows, of which two samples come again.
const std::vector<int64_t> kIds{5, 3, 8, 21, 13, 1, 5, 2, 34, 3, 4, 5};
// Sixteen, for eight ranks of two.
const std::vector<int64_t> kMoreIds{5, 3, 8, 21, 13, 1, 5, 2, 34, 3, 4, 5, 40, 17, 6, 9};

class Certificate : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    scenario_ = make_scenario("energy").release();
    scenario_->prepare(small_config(1, 12));
  }
  static void TearDownTestSuite() {
    delete scenario_;
    scenario_ = nullptr;
  }

  static void expect_exact(const RunConfig& config, const std::string& what,
                           const std::vector<at::Tensor>& parameters = {}) {
    const StepSetting setting{config.layout.global_batch() == 16 ? kMoreIds : kIds, 3, parameters};
    const StepGradients reference = of_reference(*scenario_, config, setting);
    const StepGradients ranks = of_ranks(*scenario_, config, setting);
    EXPECT_LE(worst_error(ranks, reference), kExact) << what;
    EXPECT_NEAR(ranks.loss, reference.loss, 1e-12 * std::max(1.0, std::abs(reference.loss))) << what;
  }

  static Scenario* scenario_;
};
Scenario* Certificate::scenario_ = nullptr;

TEST_F(Certificate, EveryLossAtEveryWorldSizeAndPartitioningOfRows) {
  for (const LossEntry& loss : losses()) {
    for (const int world : {1, 2, 3, 4, 8}) {
      for (const RowPartition partition : {RowPartition::equal, RowPartition::unequal, RowPartition::one_empty}) {
        if (world == 1 && partition != RowPartition::equal) {
          continue;
        }
        for (const Negatives negatives : {Negatives::global, Negatives::local}) {
          RunConfig config = small_config(world, world == 8 ? 2 : 12 / world);
          energy(config).loss = loss.name;
          config.rows = partition;
          energy(config).negatives = negatives;
          expect_exact(config, std::string(loss.name) + ", world " + std::to_string(world) + ", partition " +
                                   std::to_string(static_cast<int>(partition)) + ", negatives " +
                                   std::to_string(static_cast<int>(negatives)));
        }
      }
    }
  }
}

TEST_F(Certificate, RowsThatDoNotCountAndDuplicatesAndTilesAndMicroSteps) {
  for (const LossEntry& loss : losses()) {
    RunConfig config = small_config(3, 4);
    energy(config).loss = loss.name;
    config.rows = RowPartition::unequal;
    const std::string name(loss.name);
    energy(config).invalid_rows = 0.4;
    expect_exact(config, name + ", invalid rows");
    energy(config).mask_duplicates = true;
    expect_exact(config, name + ", invalid rows, duplicates masked");
    energy(config).tile_columns = 5;
    expect_exact(config, name + ", in tiles too");
    config.accumulation = 2;
    expect_exact(config, name + ", in two micro-steps too");
    energy(config).negatives = Negatives::local;
    energy(config).tile_columns = 2;
    expect_exact(config, name + ", local too");
    energy(config).dropout = 0;
    energy(config).context_noise = 0;
    expect_exact(config, name + ", without noise");
    energy(config).invalid_rows = 0.999999;
    expect_exact(config, name + ", no row counts");
  }
}

TEST_F(Certificate, HoldsAfterTraining) {
  for (const LossEntry& loss : losses()) {
    RunConfig config = small_config(4, 3);
    energy(config).loss = loss.name;
    config.rows = RowPartition::one_empty;
    energy(config).temperature = 0.1;
    expect_exact(config, std::string(loss.name), support::trained(*scenario_, config, kIds, 30));
  }
}

TEST_F(Certificate, ExplicitNegatives) {
  for (const Negatives negatives : {Negatives::layer, Negatives::mixed, Negatives::adaptive}) {
    for (const RowPartition partition : {RowPartition::equal, RowPartition::unequal, RowPartition::one_empty}) {
      RunConfig config = small_config(3, 4);
      energy(config).negatives = negatives;
      config.rows = partition;
      const std::string name =
          std::to_string(static_cast<int>(negatives)) + " " + std::to_string(static_cast<int>(partition));
      expect_exact(config, "negatives " + name);
      energy(config).invalid_rows = 0.4;
      energy(config).mask_duplicates = true;
      energy(config).tile_columns = 5;
      energy(config).layer.count = 11;
      config.accumulation = 2;
      expect_exact(config, "negatives " + name + ", masked, in tiles, in micro-steps");
    }
  }
}

TEST_F(Certificate, AWrongNormaliserIsNotExact) {
  RunConfig config = small_config(3, 4);
  config.rows = RowPartition::unequal;
  const StepSetting setting{kIds};
  const StepGradients reference = of_reference(*scenario_, config, setting);
  energy(config).invalid_rows = 0.2;
  EXPECT_GT(worst_error(of_ranks(*scenario_, config, setting), reference), 1e-3);
  energy(config).invalid_rows = 0;
  energy(config).negatives = Negatives::local;
  EXPECT_GT(worst_error(of_ranks(*scenario_, config, setting), reference), 1e-3);
}

}  // namespace
}  // namespace lockstep
