// The plugin's loader and its staging, with the host in the place of a GPU.

#include <gmock/gmock.h>

#include <stdexcept>

#include "harness/trainers/comm/gpu/devices.h"
#include "tests/harness/trainers/comm/plugged_ranks.h"

namespace lockstep {
namespace {

using testing::Each;
using testing::HasSubstr;

std::string problem_with(const std::string& plugin, int local_rank = 0) {
  const TempFolder folder;
  try {
    (void)make_gpu_comm(Transport::nccl, {folder / "store", 0, 1, "127.0.0.1", 5}, local_rank, plugin);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
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
  std::FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("text", file);
  std::fclose(file);
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

}  // namespace
}  // namespace lockstep
