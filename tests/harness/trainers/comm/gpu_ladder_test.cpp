// Collectives on GPUs, where there are the plugin and a GPU: one rank on NCCL, several on one GPU over Gloo, one a GPU on NCCL;
// and the matrix of configs/nccl.yaml over them.

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tests/harness/trainers/comm/plugged_ranks.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::Each;

std::string plugin() { return LOCKSTEP_BINARY_DIR "/bin/lockstep-gpu.so"; }

/// GPUs of the machine, by the driver's list: CUDA itself must not be asked by the process that forks ranks.
int gpus() {
  std::error_code error;
  const std::filesystem::directory_iterator list("/proc/driver/nvidia/gpus", error);
  return error ? 0 : static_cast<int>(std::distance(begin(list), end(list)));
}

std::string why_not(int wanted) {
  if (!std::filesystem::exists(plugin())) return "no " + plugin() + ": it is built by the preset gpu, against a CUDA build of LibTorch";
  if (gpus() < wanted) return "wants " + std::to_string(wanted) + " GPUs, and the driver lists " + std::to_string(gpus());
  return "";
}

TEST(GpuLadder, OneRankOnNcclGetsItsOwnNumbers) {
  if (const std::string why = why_not(1); !why.empty()) GTEST_SKIP() << why;
  EXPECT_THAT(support::plugged_ranks(1, {Transport::nccl, plugin()}), Each(0));
}

TEST(GpuLadder, SeveralRanksOnOneGpuAddInGloosOrder) {
  if (const std::string why = why_not(1); !why.empty()) GTEST_SKIP() << why;
  for (const int world : {2, 3, 5, 8}) EXPECT_THAT(support::plugged_ranks(world, {Transport::gloo_cuda, plugin()}), Each(0)) << world;
}

TEST(GpuLadder, OneRankAGpuAddsWithinTheBandOnNccl) {
  if (const std::string why = why_not(2); !why.empty()) GTEST_SKIP() << why;
  support::PluggedOptions options{Transport::nccl, plugin(), false};
  for (int world = 2; world <= std::min(gpus(), 8); ++world) EXPECT_THAT(support::plugged_ranks(world, options), Each(0)) << world;
}

TEST(GpuLadder, IsWalkedByTheConfigOfOneGpu) {
  if (const std::string why = why_not(1); !why.empty()) GTEST_SKIP() << why;
  const TempFolder folder;
  const ProgramEnd end = Program({LOCKSTEP_BINARY_DIR "/bin/lockstep", "run", LOCKSTEP_SOURCE_DIR "/configs/nccl.yaml", "--out", folder / "out"},
                                 folder.path(), {})
                             .end();
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_THAT(end.out, testing::HasSubstr("real Gloo (GPU) ranks"));
}

}  // namespace
}  // namespace lockstep
