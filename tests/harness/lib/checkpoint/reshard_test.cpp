// What was saved on some ranks is loaded on others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>

#include "tests/support/checkpoint_ranks.h"

namespace lockstep::checkpoint {
namespace {

using namespace support;

/// The state that a rank has after another number of ranks had saved: all but what each of those had for
/// itself.
State shared_part(int64_t step, int rank, int size) {
  State state = state_at(step, rank, size);
  for (auto& [kind, section] : state.sections) {
    section.rank_values = nlohmann::json::object();
    std::erase_if(section.tensors,
                  [](const Tensor& tensor) { return tensor.placement == Placement::per_rank; });
  }
  return state;
}

TEST(Reshard, GivesEveryNumberOfRanksTheSameState) {
  for (const int saved : {1, 2, 3, 4, 5, 8}) {
    MemoryStorage disk;
    prepare(disk);
    ASSERT_TRUE(save_on(disk, 13, saved)[0]);
    for (const int size : {1, 2, 3, 4, 5, 8}) {
      const std::vector<LoadOutcome> loaded = load_on(disk, size);
      if (size == saved) {
        EXPECT_EQ(wrong_with(loaded, 13), "");
        continue;
      }
      for (int rank = 0; rank < size; ++rank) {
        const LoadOutcome& outcome = loaded[static_cast<std::size_t>(rank)];
        ASSERT_TRUE(outcome) << outcome.problem;
        EXPECT_THAT(state_differences(shared_part(13, rank, size), outcome.state), testing::IsEmpty())
            << saved << " to " << size;
        ASSERT_EQ(outcome.of_ranks.size(), static_cast<std::size_t>(saved));
        for (int old = 0; old < saved; ++old) {
          const State& theirs = outcome.of_ranks[static_cast<std::size_t>(old)];
          EXPECT_EQ(theirs.find("stream/dropout")->rank_values["words"], nlohmann::json({13, old}));
          EXPECT_EQ(floats_in(theirs.find(kind::accumulation)->tensors[0])[0], 13300 + old);
        }
      }
    }
  }
}

/// Ranks without an element of it have an empty slice in the midst of the others', of which their files hold nothing.
TEST(Reshard, GivesATensorThatHasFewerElementsThanRanks) {
  const auto state_of = [](int rank, int size) {
    State state;
    state[kind::parameters].tensors = {floats("b", {4}, 7, Placement::sharded, even_slice(4, rank, size))};
    return state;
  };
  for (const int saved : {1, 5, 8}) {
    MemoryStorage disk;
    prepare(disk);
    run_ranks(saved, [&](int rank, Group& group) {
      Saver saver(save_options(), disk, group);
      EXPECT_TRUE(saver.save({0, 1}, state_of(rank, saved)));
    });
    for (const int size : {1, 3, 8}) {
      const std::vector<LoadOutcome> loaded = load_on(disk, size);
      for (int rank = 0; rank < size; ++rank) {
        const LoadOutcome& outcome = loaded[static_cast<std::size_t>(rank)];
        ASSERT_TRUE(outcome) << saved << " to " << size << ": " << outcome.problem;
        EXPECT_THAT(state_differences(state_of(rank, size), outcome.state), testing::IsEmpty()) << saved << " to " << size;
      }
    }
  }
}

TEST(Reshard, GivesTheSliceThatARankAsksFor) {
  MemoryStorage disk;
  prepare(disk);
  ASSERT_TRUE(save_on(disk, 13, 3)[0]);
  State expected = state_at(0, 0, 1);
  Tensor& moment = expected[kind::moments].tensors[0];
  moment.slice = {4, 11};
  expected[kind::moments].tensors[1].placement = Placement::replicated;
  LoadOptions options = load_options();
  options.expected = &expected;
  const std::vector<LoadOutcome> loaded = load_on(disk, 1, options);
  ASSERT_TRUE(loaded[0]) << loaded[0].problem;
  const Section& moments = *loaded[0].state.find(kind::moments);
  EXPECT_EQ(floats_in(moments.tensors[0]),
            (std::vector<float>{13104, 13105, 13106, 13107, 13108, 13109, 13110}));
  EXPECT_EQ(moments.tensors[1].bytes.size(), 15 * sizeof(float));
}

/// Planted: ranks save their moments from one element further on.
TEST(Reshard, NamesMomentsThatAreOneElementOff) {
  for (const int saved : {1, 2, 3, 5, 8}) {
    MemoryStorage disk;
    prepare(disk);
    run_ranks(saved, [&](int rank, Group& group) {
      State state = state_at(13, rank, saved);
      for (Tensor& moment : state[kind::moments].tensors)
        moment = floats(moment.name, moment.shape, 13101, Placement::sharded, moment.slice);
      Saver saver(save_options(), disk, group);
      EXPECT_TRUE(saver.save({1, 13}, state));
    });
    for (const int size : {1, 2, 3, 5, 8}) {
      const LoadOutcome outcome = load_on(disk, size)[0];
      ASSERT_TRUE(outcome) << outcome.problem;
      const State expected = size == saved ? state_at(13, 0, size) : shared_part(13, 0, size);
      EXPECT_THAT(state_differences(expected, outcome.state),
                  testing::ElementsAre(testing::StartsWith("moments: first_moment/w differs in "),
                                       testing::StartsWith("moments: second_moment/w differs in ")))
          << saved << " to " << size;
    }
  }
}

TEST(StateDifferences, NameKindValueAndTensor) {
  const State expected = state_at(371, 0, 2);
  EXPECT_THAT(state_differences(expected, state_at(371, 0, 2)), testing::IsEmpty());
  State seen = state_at(371, 0, 2);
  put_position(seen, {.epoch = 37, .samples = 97, .seed = 7, .permutation_hash = "p", .cursor = 64});
  seen.sections.erase("patience");
  seen[kind::moments].tensors[0] =
      floats("first_moment/w", {3, 5}, 0, Placement::sharded, even_slice(15, 0, 2));
  seen[kind::cached_controls].values["rate"] = 0.25;
  EXPECT_THAT(
      state_differences(expected, seen),
      testing::ElementsAre("cached control values: rate 0.125 expected, 0.25 seen",
                           "moments: first_moment/w differs in 7 of 7 elements, first in element 0",
                           "early-stop patience: missing", "sampler cursor: sample 80 expected, 64 seen"));
}

TEST(StateDifferences, NameBothOfEveryTwoKindsThatAreMissing) {
  const State whole = state_at(371, 0, 2);
  for (auto first = whole.sections.begin(); first != whole.sections.end(); ++first) {
    for (auto second = std::next(first); second != whole.sections.end(); ++second) {
      State lacking = state_at(371, 0, 2);
      lacking.sections.erase(first->first);
      lacking.sections.erase(second->first);
      EXPECT_THAT(state_differences(whole, lacking),
                  testing::ElementsAre(words_of(first->first) + ": missing", words_of(second->first) + ": missing"));
    }
  }
}

TEST(StateKinds, AreNamedAndMany) {
  EXPECT_GE(kinds().size() + 1, 14u);
  EXPECT_EQ(words_of("stream/dropout"), "random stream dropout");
  EXPECT_EQ(words_of("loss_scale"), "loss scale");
}

TEST(EvenSlices, AreAllElementsOnce) {
  for (const int64_t count : {0, 1, 7, 15, 64}) {
    for (const int parts : {1, 2, 3, 8, 20}) {
      int64_t at = 0;
      for (int part = 0; part < parts; ++part) {
        const Slice slice = even_slice(count, part, parts);
        EXPECT_EQ(slice.begin, at);
        EXPECT_LE(slice.end - slice.begin, count / parts + 1);
        at = slice.end;
      }
      EXPECT_EQ(at, count);
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
