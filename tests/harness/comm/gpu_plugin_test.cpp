// The plugin's loader and its staging, with the host in the place of a GPU.

#include <gmock/gmock.h>

#include <stdexcept>

#include "tests/harness/comm/plugged_ranks.h"

namespace lockstep {
namespace {

using testing::Each;
using testing::HasSubstr;

std::string problem_with(const std::string& plugin, int device = 0) {
  const support::TempFolder folder;
  try {
    (void)make_gpu_comm(GpuCarrier::nccl, {folder / "store", 0, 1, "127.0.0.1", 5}, device, plugin);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

// First: ranks are forked before this process computes.
TEST(GpuPlugin, CarriesCollectivesOfRealRanks) {
  for (const int world : {1, 3}) EXPECT_THAT(support::plugged_ranks(world, {GpuCarrier::gloo_cuda, HOST_PLUGIN}), Each(0)) << world;
}

TEST(GpuPlugin, IsMissedInWordsThatSayWhatToDo) {
  const std::string problem = problem_with("/nowhere/lockstep-gpu.so");
  EXPECT_THAT(problem, HasSubstr("need the plugin /nowhere/lockstep-gpu.so, which is not there"));
  EXPECT_THAT(problem, HasSubstr("cmake --preset gpu"));
}

TEST(GpuPlugin, IsRefusedIfItIsOfAnotherBuild) {
  EXPECT_THAT(problem_with(OTHER_PLUGIN), HasSubstr("is lockstep-gpu 0, LibTorch 1.0.0, and this program wants lockstep-gpu 1"));
}

TEST(GpuPlugin, IsNoFileThatTheLoaderCannotLoad) {
  const support::TempFolder folder;
  const std::string path = folder / "text.so";
  std::FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("text", file);
  std::fclose(file);
  EXPECT_THAT(problem_with(path), HasSubstr("cannot be loaded"));
}

TEST(GpuPlugin, SaysWhatItsOtherSideSays) { EXPECT_EQ(problem_with(HOST_PLUGIN, 1), "there is one device"); }

TEST(GpuCarriers, AreCertifiedByBitsWhereTheirOrderIsKnown) {
  EXPECT_EQ(certified_by(GpuCarrier::gloo_cuda, "", ""), CertifiedBy::bits);
  EXPECT_EQ(certified_by(GpuCarrier::nccl, "Ring", "Simple"), CertifiedBy::bits);
  EXPECT_EQ(certified_by(GpuCarrier::nccl, "Ring", ""), CertifiedBy::band);
  EXPECT_EQ(certified_by(GpuCarrier::nccl, "Tree", "Simple"), CertifiedBy::band);
}

}  // namespace
}  // namespace lockstep
