// The trainers' sampler against PyTorch's own DistributedSampler.

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "tests/support/sampler_cases.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using support::Drawn;
using support::sampler_cases;

constexpr const char* kPython = LOCKSTEP_PYTHON;

TEST(PyTorchsSampler, GivesEveryRankTheSameRows) {
  if (*kPython == '\0')
    GTEST_SKIP() << "no Python that has this LibTorch's torch package: set LOCKSTEP_PYTHON";
  const TempFolder folder;
  const std::string path = folder.path() + "/cases";
  {
    std::ofstream file(path);
    for (const Drawn& drawn : sampler_cases())
      file << drawn.options.samples << ' ' << drawn.options.world_size << ' ' << drawn.options.drop_last << ' '
           << drawn.options.shuffle << ' ' << drawn.options.seed << ' ' << drawn.epoch << '\n';
  }
  const std::string command = std::string("OMP_NUM_THREADS=1 ") + kPython +
                              " -W ignore " LOCKSTEP_SOURCE_DIR "/tests/bridge/sampler.py < " + path;
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer{};
  while (const std::size_t got = fread(buffer.data(), 1, buffer.size(), pipe))
    output.append(buffer.data(), got);
  ASSERT_EQ(pclose(pipe), 0) << output;
  std::istringstream lines(output);
  std::string theirs;
  for (const Drawn& drawn : sampler_cases()) {
    ASSERT_TRUE(lines >> theirs);
    const std::string words =
        std::to_string(drawn.options.samples) + " samples on " + std::to_string(drawn.options.world_size);
    EXPECT_EQ(support::hash_of_lists(drawn), theirs) << words;
  }
  ASSERT_TRUE(lines >> theirs);
  EXPECT_EQ(theirs, "low_32_bits") << "docs/config.md says what PyTorch's CPU generator takes of a seed";
}

}  // namespace
}  // namespace lockstep
