#pragma once
// Ranks, one process each, over a plugin: their sums are compared with the order in which Gloo's ring adds.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <string>
#include <vector>

#include "harness/trainers/comm/emulated.h"
#include "harness/trainers/comm/gpu_plugin.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace lockstep::support {

/// Of different sizes, so that another order of adding gives other bits.
inline std::vector<float> plugged_values(int rank, std::size_t elements) {
  std::vector<float> values(elements);
  uint32_t state = 12345U + 777U * static_cast<uint32_t>(rank);
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = std::ldexp(static_cast<float>(static_cast<int32_t>(state)), -20 - static_cast<int>(state % 7));
  }
  return values;
}

/// Are sums of so many elements those of Gloo's ring? `bits`: bit for bit, else within 1e-5 of the sum of sizes.
inline bool adds_as_the_ring(Comm& comm, std::initializer_list<std::size_t> sizes, bool bits = true) {
  for (const std::size_t elements : sizes) {
    std::vector<std::vector<float>> all;
    std::vector<const float*> inputs;
    for (int r = 0; r < comm.world_size(); ++r) all.push_back(plugged_values(r, elements));
    for (const auto& each : all) inputs.push_back(each.data());
    std::vector<float> expected(elements);
    ring_sum(inputs, elements, expected.data());
    std::vector<float> got = all[static_cast<std::size_t>(comm.rank())];
    comm.all_reduce_sum(at::from_blob(got.data(), {static_cast<int64_t>(elements)}, at::kFloat), "test");
    if (bits && std::memcmp(got.data(), expected.data(), elements * sizeof(float)) != 0) return false;
    for (std::size_t i = 0; i < elements; ++i) {
      double size = 0;
      for (const auto& each : all) size += std::abs(each[i]);
      if (!(std::abs(got[i] - expected[i]) <= 1e-5 * size)) return false;
    }
  }
  return true;
}

struct PluggedOptions {
  Transport transport = Transport::nccl;
  std::string plugin;
  bool bits = true;
};

/// 0: right. 1: sums. 2: gathers. 3: broadcasts. 4: something was thrown.
inline int plugged_rank(const std::string& store, int rank, int world, const PluggedOptions& options) {
  try {
    at::set_num_threads(1);
    const auto comm = make_gpu_comm(options.transport, {store, rank, world, "127.0.0.1", 60}, rank, options.plugin);
    if (!adds_as_the_ring(*comm, {1, 1000, 300001}, options.bits)) return 1;
    const at::Tensor own = at::full({3}, rank + 1, at::kLong);
    const at::Tensor gathered = comm->all_gather(own, "test");
    for (int r = 0; r < world; ++r) {
      if (!gathered[r].equal(at::full({3}, r + 1, at::kLong))) return 2;
    }
    at::Tensor sent = own.clone();
    comm->broadcast(sent, world - 1, "test");
    return sent.equal(at::full({3}, world, at::kLong)) ? 0 : 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 4;
  }
}

/// Each rank's exit status. To be called before this process computes anything: its ranks are forked from it.
inline std::vector<int> plugged_ranks(int world, const PluggedOptions& options) {
  const TempFolder folder;
  const std::string store = folder / "store";
  return codes_of(forked(world, [&](int rank) { return plugged_rank(store, rank, world, options); }));
}

}  // namespace lockstep::support
