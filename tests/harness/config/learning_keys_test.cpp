#include "harness/config/learning_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/config/canonical.h"
#include "harness/config/trainer_spec.h"

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

TEST(LearningKeys, MakeTheSameTextInAnyOrder) {
  EXPECT_EQ(learning_text({{"lr", "0.1"}, {"seed", "1"}, {"layout", "1x24"}}),
            learning_text({{"layout", "1x24"}, {"trace", "full"}, {"lr", "0.1"}}));
  EXPECT_NE(learning_text({{"lr", "0.1"}}), learning_text({{"lr", "0.2"}}));
}

}  // namespace
}  // namespace lockstep
