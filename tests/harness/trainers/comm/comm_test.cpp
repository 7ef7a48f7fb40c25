#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <stdexcept>

#include "harness/trainers/comm/all_reduce.h"
#include "harness/trainers/comm/emulated.h"
#include "harness/trainers/comm/gloo.h"
#include "harness/trainers/comm/gloo_options.h"
#include "harness/trainers/comm/gpu/devices.h"
#include "harness/trainers/comm/ledger.h"
#include "tests/harness/trainers/comm/plugged_ranks.h"
#include "tests/support/collectives.h"
#include "tests/support/ranks.h"
#include "tests/support/said.h"
#include "tests/support/temp_folder.h"

// The order in which emulated ranks add is Gloo's own: compared with real Gloo ranks.

namespace lockstep {
namespace {

/// `rank_of` in a process for each rank; its exit status is 0, or says what is wrong.
void expect_fine(int world, const std::function<int(const GlooOptions& options)>& rank_of) {
  const TempFolder folder;
  const std::vector<pid_t> ranks = support::forked(world, [&](int rank) {
    at::set_num_threads(1);
    return rank_of({folder.path() + "/store", rank, world, "127.0.0.1", 30});
  });
  EXPECT_THAT(support::codes_of(ranks), testing::Each(0)) << world << " ranks";
}

/// What one real Gloo rank does; its exit status says whether the sum had the predicted bits.
int gloo_rank(const GlooOptions& options) {
  const int rank = options.rank, world = options.world_size;
  const std::unique_ptr<Comm> comm = make_gloo_comm(options);
  if (!support::adds_as_the_ring(*comm, {1, 7, 1000, 4099, 300007})) return 1;
  // The first goes by rank 0, the second round the ring.
  for (const int64_t elements : {int64_t{2}, int64_t{200000}}) {
    const at::Tensor own = at::arange(elements, at::kLong) + (int64_t{rank} << 40);
    const at::Tensor gathered = comm->all_gather(own, "test");
    for (int r = 0; r < world; ++r) {
      if (!gathered[r].equal(at::arange(elements, at::kLong) + (int64_t{r} << 40))) return 2;
    }
    at::Tensor sum = own.clone();
    comm->all_reduce_sum(sum, "test");
    if (!sum.equal(world * at::arange(elements, at::kLong) + (int64_t{world} * (world - 1) / 2 << 40))) return 3;
  }
  return 0;
}

TEST(GlooComm, AddsAsItsRingDoesAndMovesIntegersWhole) {
  for (const int world : {2, 3, 5, 8}) expect_fine(world, gloo_rank);
}

/// What one of three real ranks hears when rank 2 gathers something else; exit status 0: rank 2 is named, in
/// time, and no payload has moved.
int odd_rank(const GlooOptions& options, int which) {
  const int rank = options.rank;
  const std::unique_ptr<Comm> comm = make_gloo_comm(options);
  comm->barrier("start");
  const std::vector<at::Tensor> odd{at::zeros({4, 3}, at::kFloat), at::zeros({4, 2}, at::kDouble),
                                    at::zeros({4, 2}, at::kFloat)};
  const char* const expected[] = {"rows of shape [3], not [2]", "as Double, not Float",
                                  "is at step 6, not 5"};
  const auto began = std::chrono::steady_clock::now();
  try {
    const auto other = static_cast<std::size_t>(which);
    gather_rows(*comm, {rank == 2 ? odd[other] : at::zeros({4, 2}, at::kFloat)},
                rank == 2 && which == 2 ? 6 : 5, "loss.candidates");
    return 1;
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (took.count() > 1.0) {
      return 2;
    }
    // Rank 2 finds that it is rank 0 who differs from it.
    const bool named = rank == 2 ? text.find("rank 0") != std::string::npos
                                 : text.find("rank 2") != std::string::npos &&
                                       text.find(expected[which]) != std::string::npos;
    if (!named) {
      return 3;
    }
  }
  // Had any payload moved, this sum would meet it.
  at::Tensor one = at::ones({1}, at::kDouble);
  comm->all_reduce_sum(one, "after");
  return one.item<double>() == 3.0 ? 0 : 4;
}

TEST(GatherRows, NamesTheRankThatDiffersOnEveryRealRankWithinASecond) {
  for (const int which : {0, 1, 2}) {
    SCOPED_TRACE(which);
    expect_fine(3, [which](const GlooOptions& options) { return odd_rank(options, which); });
  }
}

TEST(RingSum, DependsOnTheOrderForThreeRanksOrMore) {
  // If every order gave the same bits, the test above would prove nothing.
  const std::size_t elements = 1000;
  const std::vector<float> a = support::plugged_values(0, elements);
  const std::vector<float> b = support::plugged_values(1, elements);
  const std::vector<float> c = support::plugged_values(2, elements);
  std::vector<float> one(elements);
  std::vector<float> other(elements);
  ring_sum<float>({a.data(), b.data(), c.data()}, elements, one.data());
  ring_sum<float>({c.data(), b.data(), a.data()}, elements, other.data());
  EXPECT_NE(one, other);
}

/// Runs `body(rank, comm)` in one thread a rank; returns what each threw.
std::vector<std::string> on_threads(EmulatedWorld& world, int size,
                                    const std::function<void(int, Comm&)>& body) {
  return support::on_threads(size, [&](int rank) {
    try {
      body(rank, *world.comm(rank));
    } catch (const std::exception&) {
      world.abort("rank " + std::to_string(rank) + " has failed");
      throw;
    }
  });
}

TEST(EmulatedWorld, GathersReducesAndBroadcasts) {
  EmulatedWorld world(3, 10);
  const auto errors = on_threads(world, 3, [](int rank, Comm& comm) {
    at::Tensor sum = at::full({5}, rank + 1, at::kFloat);
    comm.all_reduce_sum(sum, "sum");
    if (sum[4].item<float>() != 6.0F) {
      throw std::runtime_error("wrong sum");
    }
    at::Tensor root = at::full({2}, rank, at::kLong);
    comm.broadcast(root, 2, "root");
    if (root[0].item<int64_t>() != 2) {
      throw std::runtime_error("wrong root");
    }
    const GatheredRows rows = gather_rows(
        comm, {at::full({rank, 2}, rank, at::kFloat), at::full({rank}, 10 * rank, at::kLong)}, 7, "rows");
    if (rows.total_rows != 3 || rows.offset != 2 * rank || rows.valid.sum().item<int64_t>() != 3 ||
        rows.columns[0].size(0) != 6 || rows.columns[1][5].item<int64_t>() != 20) {
      throw std::runtime_error("wrong rows");
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(EmulatedWorld, AMismatchedCollectiveIsNamedOnEveryRank) {
  EmulatedWorld world(3, 10);
  const auto errors = on_threads(world, 3, [](int rank, Comm& comm) {
    comm.all_reduce_sum(at::zeros({rank == 1 ? 4 : 5}, at::kFloat), "sum");
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("all_reduce"), std::string::npos) << error;
  }
}

TEST(GatherRows, NamesTheRankThatDiffersBeforeAnyPayloadMoves) {
  struct Case {
    const char* expected;
    at::Tensor other;
    int64_t step;
  };
  const std::vector<Case> cases{{"rows of shape [3], not [2]", at::zeros({4, 3}, at::kFloat), 5},
                                {"as Double, not Float", at::zeros({4, 2}, at::kDouble), 5},
                                {"is at step 6, not 5", at::zeros({4, 2}, at::kFloat), 6}};
  for (const Case& planted : cases) {
    EmulatedWorld world(3, 10);
    const auto errors = on_threads(world, 3, [&](int rank, Comm& comm) {
      const bool odd = rank == 2;
      gather_rows(comm, {odd ? planted.other : at::zeros({4, 2}, at::kFloat)}, odd ? planted.step : 5,
                  "loss.candidates");
    });
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_NE(errors[static_cast<std::size_t>(rank)].find("rank 2"), std::string::npos)
          << errors[static_cast<std::size_t>(rank)];
      EXPECT_NE(errors[static_cast<std::size_t>(rank)].find(planted.expected), std::string::npos)
          << errors[static_cast<std::size_t>(rank)];
    }
    EXPECT_FALSE(errors[2].empty());
  }
}

TEST(SoloComm, IsTheIdentity) {
  const std::unique_ptr<Comm> comm = make_solo_comm();
  const GatheredRows rows = gather_rows(*comm, {at::arange(6, at::kFloat).reshape({3, 2})}, 0, "rows");
  EXPECT_EQ(rows.total_rows, 3);
  EXPECT_TRUE(at::equal(rows.columns[0], at::arange(6, at::kFloat).reshape({3, 2})));
}

// Calls that do not fit are named on every rank before anything moves; what may differ raises no alarm.

using testing::Each;
using testing::HasSubstr;

constexpr int kRanks = 3;

using Body = std::function<void(int rank, Comm& comm)>;

/// What each rank of a checked communicator throws.
std::vector<std::string> checked(const Body& body, const std::function<int64_t(int rank)>& step = nullptr) {
  EmulatedWorld world(kRanks, 10);
  return support::on_threads(kRanks, [&](int rank) {
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
  const auto errors = support::on_threads(kRanks, [&](int rank) {
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
  return support::on_threads(kRanks, [&](int rank) {
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

// The plugin's loader and its staging, with the host in the place of a GPU.

std::string problem_with(const std::string& plugin, int local_rank = 0) {
  const TempFolder folder;
  return support::thrown_by([&] {
    (void)make_gpu_comm(Transport::nccl, {folder / "store", 0, 1, "127.0.0.1", 5}, local_rank, plugin);
  });
}

// First: ranks are forked before this process computes.
TEST(GpuPlugin, CarriesCollectivesOfRealRanks) {
  for (const int world : {1, 3}) EXPECT_THAT(support::plugged_ranks(world, {Transport::gloo_cuda, HOST_PLUGIN}), Each(0)) << world;
}

TEST(GpuPlugin, IsMissedInWordsThatSayWhatToDo) {
  const std::string problem = problem_with("/nowhere/lockstep-gpu.so");
  EXPECT_THAT(problem, HasSubstr("need the plugin /nowhere/lockstep-gpu.so, which is not there"));
  EXPECT_THAT(problem, HasSubstr("cmake --preset gpu"));
}

TEST(GpuPlugin, IsRefusedIfItIsOfAnotherBuild) {
  EXPECT_THAT(problem_with(OTHER_PLUGIN), HasSubstr("is lockstep-gpu 0, LibTorch 1.0.0, and this program wants lockstep-gpu 2"));
}

TEST(GpuPlugin, IsNoFileThatTheLoaderCannotLoad) {
  const TempFolder folder;
  const std::string path = folder / "text.so";
  write_text(path, "text");
  EXPECT_THAT(problem_with(path), HasSubstr("cannot be loaded"));
}

TEST(GpuPlugin, SaysWhatItsOtherSideSays) {
  EXPECT_EQ(problem_with(HOST_PLUGIN, 1), "NCCL wants a GPU for each rank of a host, and 2 ranks of this one see 1 GPU: take at most 1 a "
                                          "host, or backend: gloo_cuda, whose ranks share GPUs");
}

TEST(GpuPlugin, IsAskedBeforeAnyRankStarts) {
  EXPECT_EQ(gpu_problem(Transport::nccl, 1, HOST_PLUGIN), "");
  EXPECT_EQ(gpu_problem(Transport::gloo_cuda, 8, HOST_PLUGIN), "") << "ranks share GPUs";
  EXPECT_THAT(gpu_problem(Transport::nccl, 8, HOST_PLUGIN), HasSubstr("8 ranks of this one see 1 GPU"));
  EXPECT_THAT(gpu_problem(Transport::nccl, 8, "/nowhere/lockstep-gpu.so"), HasSubstr("which is not there"));
  EXPECT_THAT(gpu_problem(Transport::gloo_cuda, 8, OTHER_PLUGIN), HasSubstr("this program wants lockstep-gpu 2"));
}

TEST(Gpus, AreOneARankOnNcclAndSharedOverGloo) {
  std::string problem;
  const GpusSeen four{4, std::nullopt}, none{0, std::nullopt}, hidden{0, ""}, two{2, "0,3"};
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(gpu_of_rank(Transport::nccl, rank, four, problem), rank);
  EXPECT_EQ(gpu_of_rank(Transport::gloo_cuda, 6, four, problem), 2);
  EXPECT_EQ(problem, "");
  EXPECT_EQ(gpu_of_rank(Transport::nccl, 4, four, problem), -1);
  EXPECT_THAT(gpus_problem(Transport::nccl, 3, two), HasSubstr("3 ranks of this one see 2 GPUs (CUDA_VISIBLE_DEVICES=0,3)"));
  EXPECT_THAT(gpus_problem(Transport::gloo_cuda, 1, none), HasSubstr("is the NVIDIA driver loaded"));
  EXPECT_THAT(gpus_problem(Transport::gloo_cuda, 1, hidden), HasSubstr("CUDA_VISIBLE_DEVICES= may hide them"));
}

TEST(GpuTransports, AreCertifiedByBitsWhereTheirOrderIsKnown) {
  EXPECT_EQ(certified_by(Transport::gloo, "", ""), CertifiedBy::bits);
  EXPECT_EQ(certified_by(Transport::gloo_cuda, "", ""), CertifiedBy::bits);
  EXPECT_EQ(certified_by(Transport::nccl, "Ring", "Simple"), CertifiedBy::bits);
  EXPECT_EQ(certified_by(Transport::nccl, "Ring", ""), CertifiedBy::band);
  EXPECT_EQ(certified_by(Transport::nccl, "Tree", "Simple"), CertifiedBy::band);
}

// Every collective of the groups that real ranks have, and doctor's all-reduce: each element of what each rank gets.

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
