// The trainers' sampler against PyTorch's own DistributedSampler.

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/lib/data/sampler.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

constexpr const char* kPython = LOCKSTEP_PYTHON;

struct Drawn {
  SamplerOptions options;
  int64_t epoch = 0;
};

Drawn drawn(int64_t samples, int ranks, bool drop_last, bool shuffle, int64_t seed, int64_t epoch) {
  return {{.samples = samples, .world_size = ranks, .seed = seed, .shuffle = shuffle, .drop_last = drop_last}, epoch};
}

/// 600 cases, the edges among them.
std::vector<Drawn> cases() {
  std::vector<Drawn> all;
  for (const int64_t samples : {0, 1, 2, 7, 16, 17, 257}) {
    for (const int ranks : {1, 2, 8, 16}) {
      for (const bool drop_last : {false, true}) all.push_back(drawn(samples, ranks, drop_last, true, 3, 2));
    }
  }
  for (uint64_t i = 0; all.size() < 600; ++i) {
    const auto below = [i](uint64_t what, uint64_t count) { return keyed(uint64_t{7}, i, what) % count; };
    all.push_back(drawn(static_cast<int64_t>(below(0, 258)), static_cast<int>(1 + below(1, 16)), below(2, 2) == 0,
                        below(3, 2) == 0, static_cast<int64_t>(below(4, 1000)), static_cast<int64_t>(below(5, 3))));
  }
  return all;
}

std::string hash_of(const std::vector<std::vector<int64_t>>& shards) {
  uint64_t state = 0xcbf29ce484222325u;
  const auto add = [&](int64_t value) {
    for (int shift = 0; shift < 64; shift += 8)
      state = (state ^ ((static_cast<uint64_t>(value) >> shift) & 0xffu)) * 0x100000001b3u;
  };
  for (const auto& shard : shards) {
    add(static_cast<int64_t>(shard.size()));
    for (const int64_t id : shard) add(id);
  }
  return hex16(state);
}

/// Each rank's list; empty ones where the sampler refuses the case (PyTorch returns empty lists without a message).
std::vector<std::vector<int64_t>> shards_of(Drawn drawn) {
  std::vector<std::vector<int64_t>> shards(static_cast<std::size_t>(drawn.options.world_size));
  try {
    for (int& rank = drawn.options.rank; rank < drawn.options.world_size; ++rank)
      shards[static_cast<std::size_t>(rank)] = DistributedSampler(drawn.options).epoch_indices(drawn.epoch);
  } catch (const ConfigError&) {
  }
  return shards;
}

TEST(PyTorchsSampler, GivesEveryRankTheSameRows) {
  if (*kPython == '\0')
    GTEST_SKIP() << "no Python that has this LibTorch's torch package: set LOCKSTEP_PYTHON";
  const TempFolder folder;
  const std::string path = folder.path() + "/cases";
  {
    std::ofstream file(path);
    for (const Drawn& drawn : cases())
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
  for (const Drawn& drawn : cases()) {
    ASSERT_TRUE(lines >> theirs);
    const std::string words =
        std::to_string(drawn.options.samples) + " samples on " + std::to_string(drawn.options.world_size);
    EXPECT_EQ(hash_of(shards_of(drawn)), theirs) << words;
  }
  ASSERT_TRUE(lines >> theirs);
  EXPECT_EQ(theirs, "low_32_bits") << "docs/config.md says what PyTorch's CPU generator takes of a seed";
}

}  // namespace
}  // namespace lockstep
