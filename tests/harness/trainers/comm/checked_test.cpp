// Calls that do not fit are named on every rank before anything moves; what may differ raises no alarm.

#include "harness/trainers/comm/checked.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "harness/trainers/comm/emulated.h"
#include "harness/trainers/comm/gloo_options.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int kRanks = 3;
using Body = std::function<void(int rank, Comm& comm)>;

std::vector<std::string> errors_of(const std::function<void(int rank)>& body) {
  std::vector<std::string> errors(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// What each rank of a checked communicator throws.
std::vector<std::string> checked(const Body& body, const std::function<int64_t(int rank)>& step = nullptr) {
  EmulatedWorld world(kRanks, 10);
  return errors_of([&](int rank) {
    const auto comm = make_checked_comm(world.comm(rank), [&, rank] { return step ? step(rank) : 4; });
    body(rank, *comm);
  });
}

TEST(CheckedComm, NamesTheRankAndBothCallsOnEveryRank) {
  const struct {
    Body body;
    std::string says;
  } cases[] = {
      {[](int rank, Comm& comm) { rank == 1 ? comm.barrier("x") : comm.all_reduce_sum(at::zeros({2}), "x"); },
       "rank 1 calls barrier x (number 1, step 4); but ranks 0, 2 call all_reduce sum x of Float [2] (number 1, step 4)"},
      {[](int rank, Comm& comm) { rank == 2 ? comm.all_reduce_max(at::zeros({2}), "x") : comm.all_reduce_sum(at::zeros({2}), "x"); },
       "rank 2 calls all_reduce max x"},
      {[](int rank, Comm& comm) { comm.all_reduce_sum(rank == 0 ? at::zeros({2, 3}) : at::zeros({3, 2}), "x"); },
       "rank 0 calls all_reduce sum x of Float [2, 3]"},
      {[](int rank, Comm& comm) { comm.all_gather(at::zeros({2}, rank == 1 ? at::kDouble : at::kFloat), "x"); },
       "rank 1 calls all_gather x of Double [2]"},
      {[](int rank, Comm& comm) { comm.broadcast(at::zeros({2}), rank == 1 ? 1 : 0, "x"); },
       "rank 1 calls broadcast x of Float [2] from rank 1"},
      {[](int rank, Comm& comm) {
         if (rank != 2) comm.all_reduce_sum(at::zeros({2}), "first");
         comm.all_reduce_sum(at::zeros({2}), "second");
       },
       "rank 2 calls all_reduce sum second"},
  };
  for (const auto& each : cases) EXPECT_THAT(checked(each.body), Each(HasSubstr(each.says)));
  EXPECT_THAT(checked([](int, Comm& comm) { comm.barrier("x"); }, [](int rank) { return rank == 2 ? 5 : 4; }),
              Each(HasSubstr("rank 2 calls barrier x (number 1, step 5)")));
}

TEST(CheckedComm, IsSilentOnUnevenRowsRootsThatChangeAndSubGroupsInAnyOrder) {
  EmulatedWorld all(kRanks, 10), pair(2, 10);
  const auto errors = errors_of([&](int rank) {
    const auto comm = make_checked_comm(all.comm(rank), [] { return 0; });
    const auto part = rank < 2 ? make_checked_comm(pair.comm(rank), [] { return 0; }) : nullptr;
    for (int round = 0; round < 5; ++round) {
      gather_rows(*comm, {at::zeros({rank, 3})}, round, "rows");
      comm->broadcast(at::zeros({2}), round % kRanks, "target");
      if (part != nullptr) part->all_reduce_sum(at::zeros({round + 1}), "pair");  // rank 2 is not in it
      comm->barrier("end");
    }
  });
  EXPECT_THAT(errors, Each(""));
}

std::vector<std::string> called(const std::function<void(int rank, GlooOptions& options, Identity& identity)>& change, double wait_s = 10) {
  const TempFolder folder;
  return errors_of([&](int rank) {
    GlooOptions options{folder.path() + "/store", rank, kRanks, "127.0.0.1", 10};
    Identity identity{{{"threads", "1"}, {"config", "a"}}, nullptr};
    change(rank, options, identity);
    if (options.rank >= 0) run_preflight_check(options, identity, {wait_s, 2});
  });
}

TEST(PreflightCheck, IsSilentOnRanksThatAreAlike) {
  EXPECT_THAT(called([](int, GlooOptions&, Identity&) {}), Each(""));
}

TEST(PreflightCheck, NamesWhoDiffersOnEveryRank) {
  EXPECT_THAT(called([](int rank, GlooOptions&, Identity& identity) { identity.facts[1].second = rank == 1 ? "b" : "a"; }),
              Each(HasSubstr("rank 1 has config b where most have a")));
  EXPECT_THAT(called([](int rank, GlooOptions& options, Identity&) { options.world_size += rank == 2 ? 1 : 0; }),
              Each(HasSubstr("rank 2 has world size 4 where most have 3")));
  EXPECT_THAT(called([](int rank, GlooOptions& options, Identity&) { options.rank = rank == 0 ? 1 : rank; }),
              Each(HasSubstr("rank 1 joined twice")));
  const auto skewed = [](int rank, GlooOptions&, Identity& identity) {
    if (rank == 1) identity.clock = [] { return 1.0; };
  };
  EXPECT_THAT(called(skewed), Each(HasSubstr("rank 1 has a clock")));
}

TEST(PreflightCheck, NamesWhoHasNotCome) {
  const auto errors = called([](int rank, GlooOptions& options, Identity&) { options.rank = rank == 2 ? -1 : rank; }, 0.2);
  EXPECT_THAT(errors[0], HasSubstr("rank 2 did not join"));
  EXPECT_THAT(errors[1], HasSubstr("rank 2 did not join"));
}

}  // namespace
}  // namespace lockstep
