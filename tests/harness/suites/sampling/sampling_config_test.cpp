// Bad input of the section `sampling`: everything that is wrong, each with its place.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/base/errors.h"
#include "harness/suites/sampling/sampling.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::string problem_of(const std::string& section) {
  static const SuiteKind* const kKinds[] = {&sampling_suite()};
  try {
    read_suite("# Does it?\nname: bad\nlaboratory: sampling\nsampling:\n" + section, "bad.yaml", {},
                    kKinds);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(SamplingConfig, TakesAJobOfOnesOwn) {
  EXPECT_EQ(problem_of("  samples: 1404\n  ranks: 8\n  tasks: {reach: 1.5, push: 2}\n  round: [push]\n"), "");
}

TEST(SamplingConfig, RefusesNoSamplesAndFewerThanRanks) {
  EXPECT_THAT(problem_of("  samples: 0\n"),
              HasSubstr("bad.yaml:5:12: sampling.samples must be in [1, 100000000] (samples), not 0"));
  EXPECT_THAT(
      problem_of("  samples: 5\n  ranks: 8\n"),
      HasSubstr(
          "bad.yaml:5:12: 5 samples for 8 ranks: some ranks have none of their own; at least 8 expected"));
}

TEST(SamplingConfig, TakesAJobOfManyRanksAndSaysHowMany) {
  EXPECT_EQ(problem_of("  samples: 100000000\n  epochs: 100\n  ranks: 4096\n  states: 1000000\n"
                       "  states_a_round: 8192\n  episodes: 1000\n  tasks: {a: 1, b: 2, c: 3, d: 4, e: 5}\n"),
            "");
  EXPECT_THAT(problem_of("  ranks: 4097\n"),
              HasSubstr("bad.yaml:5:10: sampling.ranks must be in [1, 4096] (ranks), not 4097"));
  EXPECT_THAT(problem_of("  most_ranks: 65\n"),
              HasSubstr("bad.yaml:5:15: sampling.most_ranks must be in [1, 64] (ranks), not 65"));
  EXPECT_THAT(problem_of("  ranks: 4096\n  samples: 4096\n"),
              HasSubstr("bad.yaml:5:10: a round of 16 leaves some of 4096 ranks without an initial state"));
}

TEST(SamplingConfig, RefusesATaskThatIsUnknownOrNamedTwice) {
  const std::string problem = problem_of("  tasks: {reach: 1.5, push: 2}\n  round: [pusj, reach, reach]\n");
  EXPECT_THAT(problem,
              HasSubstr("bad.yaml:6:11: unknown task 'pusj'; known are reach, push; did you mean push?"));
  EXPECT_THAT(problem, HasSubstr("bad.yaml:6:24: task 'reach' is named twice; each is done once in a round"));
  EXPECT_THAT(problem_of("  round: [reach]\n"),
              HasSubstr("bad.yaml:5:3: sampling.round names tasks, and sampling.tasks gives none"));
}

TEST(SamplingConfig, RefusesCostsThatAreNone) {
  EXPECT_THAT(problem_of("  tasks: {reach: 0}\n"), HasSubstr("bad.yaml:5:18: sampling.tasks"));
  EXPECT_THAT(problem_of("  tasks: [reach]\n"), HasSubstr("bad.yaml:5:3: sampling.tasks must be a map"));
}

TEST(SamplingConfig, RefusesRoundsThatCannotBePartitioned) {
  EXPECT_THAT(
      problem_of("  states: 10\n  states_a_round: 16\n"),
      HasSubstr("bad.yaml:6:19: a round of 16 cannot be drawn without repetition from 10 initial states"));
  EXPECT_THAT(problem_of("  ranks: 8\n  states_a_round: 4\n"),
              HasSubstr("bad.yaml:6:19: a round of 4 leaves some of 8 ranks without"));
  EXPECT_THAT(problem_of("  ranks: 8\n  tasks: {a: 1, b: 1}\n  episodes: 3\n"),
              HasSubstr("bad.yaml:7:13: 2 tasks of 3 episodes cannot give each of 8 ranks something to do"));
}

TEST(SamplingConfig, KnowsItsKeys) {
  EXPECT_THAT(problem_of("  sampels: 3\n"), HasSubstr("did you mean sampling.samples?"));
  EXPECT_THAT(problem_of("  experiment: sampel\n"), HasSubstr("did you mean sampler?"));
}

}  // namespace
}  // namespace lockstep
