// The classic mistakes of savers, planted: each does the harm that the order of operations is there to
// prevent.

#include "harness/lib/checkpoint/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/checkpoint_ranks.h"

namespace lockstep::checkpoint {
namespace {

using namespace support;

/// Saves steps 10 and 11 on two ranks, the latter with a mistake, and rank 0 ends at `dead_at` if that is a
/// part of an operation's words. Returns what is wrong then: an acknowledged step that does not load, or a
/// pointer to what does not.
std::string harm_of(const Planted& planted, const std::string& dead_at, bool pointer = false) {
  MemoryStorage disk;
  prepare(disk);
  SaveOptions options = save_options();
  options.keep_last = 1;
  save_on(disk, 10, 2, options);
  options.planted = planted;
  FaultHook hook;
  hook.dead_at = dead_at;
  if (dead_at.empty()) hook.dead_at = "never";
  Seam seam(hook);
  HookedStorage hooked(disk, seam);
  std::vector<SaveOutcome> outcomes(2);
  run_ranks(2, [&](int rank, Group& group) {
    HookedGroup hooked_group(group, seam);
    Saver saver(options, rank == 0 ? static_cast<Storage&>(hooked) : disk,
                rank == 0 ? static_cast<Group&>(hooked_group) : group);
    outcomes[static_cast<std::size_t>(rank)] = saver.save({1, 11}, state_at(11, rank, 2));
  });
  for (const SaveOutcome& outcome : outcomes) {
    if (outcome.saved == Saved::failed && dead_at.empty()) return outcome.problem;
  }
  LoadOptions load_from = load_options();
  if (pointer) load_from.name = "latest";
  const std::vector<LoadOutcome> loaded = load_on(disk, 2, load_from);
  const bool acknowledged = outcomes[0] || outcomes[1];
  const bool is_new = loaded[0] && loaded[0].manifest.step == 11;
  // The pointer may be behind; what it names must load.
  return wrong_with(loaded, is_new || (acknowledged && !pointer) ? 11 : 10);
}

TEST(Planted, DoNoHarmWhereNothingIsPlanted) {
  for (const char* dead_at : {"", "create", "gather 'written'", "gather 'renamed'", "commit.json",
                              "gather 'committed'", "unlink"}) {
    EXPECT_EQ(harm_of({}, dead_at), "") << dead_at;
    EXPECT_EQ(harm_of({}, dead_at, true), "") << dead_at;
  }
}

TEST(Planted, OneFileNameTears) { EXPECT_NE(harm_of({.one_file_name = true}, ""), ""); }

TEST(Planted, DeletingBeforeTheCommitLosesEverything) {
  EXPECT_NE(harm_of({.delete_before_commit = true}, "gather 'written'"), "");
}

TEST(Planted, APointerBeforeTheCommitPointsToNothing) {
  EXPECT_NE(harm_of({.latest_before_commit = true}, "gather 'written'", true), "");
}

}  // namespace
}  // namespace lockstep::checkpoint
