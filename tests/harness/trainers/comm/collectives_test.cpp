// Every collective of the groups that real ranks have, and doctor's all-reduce: each element of what each rank gets.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "harness/trainers/comm/all_reduce.h"
#include "harness/trainers/comm/gloo.h"
#include "tests/support/collectives.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

/// `rank_of` in a process for each rank; its exit status is 0, or says what is wrong.
void expect_fine(int world, const std::function<int(const GlooOptions& options)>& rank_of) {
  const TempFolder folder;
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    alarm(120);
    at::set_num_threads(1);
    _exit(rank_of({folder.path() + "/store", rank, world, "127.0.0.1", 30}));
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << world << " ranks; exit status " << WEXITSTATUS(status);
  }
}

TEST(Collectives, OfRealRanksGiveEveryElementRight) {
  for (const int world : {2, 3, 4, 8}) {
    expect_fine(world, [](const GlooOptions& options) {
      const auto group = make_gloo_group(make_store(options), "test", options);
      for (const int64_t chunk : {1, 3, 4099}) {
        for (const support::Collective& each : support::collectives()) {
          support::Ranks ranks{*group};
          ranks.count = chunk * options.world_size;
          each.prepare(ranks);
          each.run(ranks);
          // Of three ranks the last one's last element is changed, and found.
          const int64_t last = ranks.out.numel() - 1;
          const bool spoils = options.world_size == 3 && options.rank == 2 && each.expected != nullptr;
          if (spoils) ranks.out[last] += 1;
          if (each.first_wrong(ranks) != (spoils ? last : -1))
            return 1 + static_cast<int>(&each - support::collectives().data());
        }
      }
      return 0;
    });
  }
}

TEST(AllReduceOfDoctor, FindsEveryElementRightAndNamesTheOneThatIsChanged) {
  for (const int wrong_rank : {-1, 1}) {
    expect_fine(3, [wrong_rank](const GlooOptions& options) {
      const auto comm = make_gloo_comm(options);
      const bool spoils = options.rank == wrong_rank;
      const all_reduce::Answer one = all_reduce::answer_to({4, 1}, *comm, spoils ? 700 : -1);
      const all_reduce::Answer some = all_reduce::answer_to({1 << 20, 2}, *comm, spoils ? 700 : -1);
      if (one.wrong != 0 || one.seconds <= 0) return 1;  // it has no element 700
      if (some.wrong != (spoils ? 2 : 0)) return 2;      // in a call before the timed ones and in one after them
      // (7 * 700 + 13 r + 1) mod 251 of ranks 0, 1 and 2, and 1.
      return !spoils || (some.first_wrong == 700 && some.expected == 132 + 145 + 158 && some.got == "436") ? 0 : 3;
    });
  }
}

}  // namespace
}  // namespace lockstep
