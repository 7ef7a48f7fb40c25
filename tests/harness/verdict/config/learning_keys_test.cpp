#include "harness/verdict/config/canonical.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {
namespace {

TEST(LearningKeys, AreAllButThoseOfExecutionAndWatching) {
  std::vector<std::string> others;
  for (const auto& [key, value] : config_fields(RunConfig(*trainer_specs().front()))) {
    if (!decides_learning(key)) others.push_back(key);
  }
  // Each stands in a config: a key that is renamed must be renamed here, or it would make other questions of
  // equal ones.
  EXPECT_THAT(others, testing::UnorderedElementsAre("seed", "trace", "snapshot_steps", "eval_every", "timeout_s", "control_guard",
                                                    "ranks", "process_start", "bucket_cap_bytes", "gradient_as_bucket_view",
                                                    "find_unused_parameters", "data.cache", "data.prefetch"));
}

TEST(BitKeys, AreAllButThoseOfWatchingAndPlanting) {
  std::vector<std::string> others;
  for (const auto& [key, value] : config_fields(RunConfig(*trainer_specs().front()))) {
    const bool of_a_group = key.starts_with("mutant.") || key.starts_with("second_mutant.") || key.starts_with("forced.") ||
                            key.starts_with("checkpoint.") || key.starts_with("watch.");
    if (!decides_bits(key) && !of_a_group) others.push_back(key);
  }
  EXPECT_THAT(others, testing::UnorderedElementsAre("seed", "stop_after", "resume_from", "resume_step", "trace", "snapshot_steps", "eval_every",
                                                    "timeout_s", "process_start", "data.cache", "data.prefetch"));
  EXPECT_TRUE(decides_bits("watch.nan_guard"));
}

TEST(BitKeys, PromiseEqualBitsToConfigsThatDifferInNoOther) {
  const RunConfig one(*trainer_specs().front());
  RunConfig other = one;
  other.trace = TraceLevel::full;
  other.mutant.name = "sign_flipped";
  EXPECT_TRUE(promise_equal_bits(one, other)) << "what is planted is found, not excused";
  for (const auto change : {+[](RunConfig& it) { it.bucket_cap_bytes = 100; }, +[](RunConfig& it) { it.accumulation = 2; },
                            +[](RunConfig& it) { it.precision = Precision::bfloat16; }, +[](RunConfig& it) { it.backend = Backend::gloo; },
                            +[](RunConfig& it) { it.layout = {1, 12}; }, +[](RunConfig& it) { it.perturb = Perturbation::epsilon; }}) {
    other = one;
    change(other);
    EXPECT_FALSE(promise_equal_bits(one, other));
  }
  RunConfig on_gpus = one;
  on_gpus.transport = Transport::nccl;
  EXPECT_FALSE(promise_equal_bits(on_gpus, on_gpus)) << "nobody says in which order it adds";
}

TEST(LearningKeys, MakeTheSameTextInAnyOrder) {
  EXPECT_EQ(learning_text({{"lr", "0.1"}, {"seed", "1"}, {"layout", "1x24"}}),
            learning_text({{"layout", "1x24"}, {"trace", "full"}, {"lr", "0.1"}}));
  EXPECT_NE(learning_text({{"lr", "0.1"}}), learning_text({{"lr", "0.2"}}));
}

}  // namespace
}  // namespace lockstep
