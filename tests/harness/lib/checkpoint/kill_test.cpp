// Ranks as processes on the machine's file system, one of which is killed at an operation.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/checkpoint_ranks.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoint {
namespace {

using namespace support;

/// Two processes save step 11; `killed` dies before its operation `at`. Returns how the survivor's save
/// ended, and whether the other one was killed.
std::pair<Saved, bool> save_and_kill(const SaveOptions& options, int killed, int64_t at) {
  std::vector<std::unique_ptr<SocketGroup>> groups = make_socket_groups(2);
  pid_t children[2];
  for (int rank = 0; rank < 2; ++rank) {
    children[rank] = ::fork();
    if (children[rank] != 0) continue;
    groups[static_cast<std::size_t>(1 - rank)]->close();
    SignalAt hook(rank == killed ? at : -1, SIGKILL);
    Seam seam(hook);
    HookedStorage storage(posix_storage(), seam);
    HookedGroup group(*groups[static_cast<std::size_t>(rank)], seam);
    const SaveOutcome outcome = Saver(options, storage, group).save({1, 11}, state_at(11, rank, 2));
    ::_exit(static_cast<int>(outcome.saved));
  }
  for (auto& group : groups) group->close();
  int status[2] = {};
  for (int rank = 0; rank < 2; ++rank) ::waitpid(children[rank], &status[rank], 0);
  return {static_cast<Saved>(WEXITSTATUS(status[1 - killed])), WIFSIGNALED(status[killed])};
}

TEST(KilledRank, LeavesTheOldOrTheNewOnTheDisk) {
  for (const int killed : {0, 1}) {
    bool dies = true;
    for (int64_t at = killed; dies; at += 5) {
      TempFolder folder;
      SaveOptions options = save_options();
      options.root = folder / "checkpoints";
      LoadOptions load_from = load_options();
      load_from.root = options.root;
      for (const SaveOutcome& outcome : save_on(posix_storage(), 10, 2, options))
        ASSERT_TRUE(outcome) << outcome.problem;
      const auto [survivor, was_killed] = save_and_kill(options, killed, at);
      dies = was_killed;
      const std::vector<LoadOutcome> loaded = load_on(posix_storage(), 2, load_from);
      const bool is_new = loaded[0] && loaded[0].manifest.step == 11;
      EXPECT_EQ(wrong_with(loaded, is_new ? 11 : 10), "") << "rank " << killed << " at " << at;
      EXPECT_TRUE(is_new || survivor != Saved::committed) << "rank " << killed << " at " << at;
      // The kernel has let go of the lock, and the next run saves.
      for (const SaveOutcome& outcome : save_on(posix_storage(), 12, 2, options))
        EXPECT_TRUE(outcome) << outcome.problem;
      EXPECT_EQ(wrong_with(load_on(posix_storage(), 2, load_from), 12), "");
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
