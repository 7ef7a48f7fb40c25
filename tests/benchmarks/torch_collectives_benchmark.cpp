// Collectives of real ranks on this host: over a group as trainers have it (one thread, which yields to ranks that
// compute), and over a plain c10d::ProcessGroupGloo as PyTorch makes it, in turns in the same processes.
//
// The time of an iteration is that of one call, of the rank that took longest: the median of several rounds. The
// counters are those of nccl-tests: `size` in bytes, `algbw` and `busbw` in GB/s; `pytorch_us` is the plain group's
// time, `ratio` ours over it.

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "harness/base/machine.h"
#include "harness/base/numbers.h"
#include "harness/trainers/comm/gloo.h"
#include "tests/support/collectives.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

constexpr int kRounds = 5, kMostRanks = 8;
/// Of each rank: seconds of one call by round, of our group and of the plain one.
using Seconds = std::array<std::array<std::array<double, 2>, kRounds>, kMostRanks>;

c10::intrusive_ptr<c10d::ProcessGroup> plain_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world) {
  auto prefixed = c10::make_intrusive<c10d::PrefixStore>("plain", store);
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::milliseconds(60000));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(prefixed, rank, world);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                    c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed, rank, world, options));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return group;
}

void time_rank(const std::string& path, int rank, int world, const support::Collective& collective, int64_t count,
               Seconds& seconds) {
  at::set_num_threads(1);
  const GlooOptions options{path, rank, world, "127.0.0.1", 60};
  const auto store = make_store(options);
  const std::array groups{make_gloo_group(store, "ours", options), plain_group(store, rank, world)};
  const int64_t calls = std::clamp<int64_t>((int64_t{1} << 21) / (count * world), 3, 80 / world);
  for (int round = -1; round < kRounds; ++round) {  // the first one connects
    for (std::size_t which = 0; which < groups.size(); ++which) {
      support::Ranks ranks{*groups[which]};
      ranks.count = count;
      collective.prepare(ranks);
      groups[which]->barrier()->wait();
      const double began = monotonic_s();
      for (int64_t call = 0; call < calls; ++call) collective.run(ranks);
      if (round >= 0)
        seconds[static_cast<std::size_t>(rank)][static_cast<std::size_t>(round)][which] =
            (monotonic_s() - began) / static_cast<double>(calls);
    }
  }
}

/// Of one call by the slowest rank.
std::vector<double> slowest(const Seconds& seconds, int world, std::size_t which) {
  std::vector<double> of_rounds;
  for (std::size_t round = 0; round < kRounds; ++round) {
    double most = 0;
    for (int rank = 0; rank < world; ++rank)
      most = std::max(most, seconds[static_cast<std::size_t>(rank)][round][which]);
    of_rounds.push_back(most);
  }
  return of_rounds;
}

void collective(benchmark::State& state, const support::Collective& collective) {
  const auto world = static_cast<int>(state.range(0));
  const int64_t count = std::max<int64_t>(state.range(1) / 4 / world, 1) * world;
  void* const shared = ::mmap(nullptr, sizeof(Seconds), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& seconds = *static_cast<Seconds*>(shared);
  for ([[maybe_unused]] auto _ : state) {
    const TempFolder folder;
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < world; ++rank) {
      ranks.push_back(::fork());
      if (ranks.back() != 0) continue;
      time_rank(folder.path() + "/store", rank, world, collective, count, seconds);
      ::_exit(0);
    }
    for (const pid_t rank : ranks) {
      int status = 0;
      ::waitpid(rank, &status, 0);
      if (status != 0) state.SkipWithError("a rank failed");
    }
    state.SetIterationTime(median(slowest(seconds, world, 0)));
  }
  const double ours = median(slowest(seconds, world, 0)), plain = median(slowest(seconds, world, 1));
  const double bytes = collective.expected == nullptr ? 0 : static_cast<double>(count) * 4;
  state.counters["size"] = bytes;
  state.counters["algbw"] = bytes / ours * 1e-9;
  state.counters["busbw"] = collective.bus_factor(world) * bytes / ours * 1e-9;
  state.counters["pytorch_us"] = plain * 1e6;
  state.counters["ratio"] = ours / plain;
  ::munmap(shared, sizeof(Seconds));
}

const bool kRegistered = [] {
  for (const support::Collective& each : support::collectives()) {
    auto* const added = benchmark::RegisterBenchmark((std::string("Collective/") + each.name).c_str(),
                                                     [&each](benchmark::State& state) { collective(state, each); });
    added->ArgNames({"ranks", "bytes"})->UseManualTime()->Unit(benchmark::kMicrosecond)->Iterations(1);
    for (const int64_t ranks : {2, 8}) {
      for (const int64_t bytes : {4096, 262144, 8388608}) {
        if (each.expected != nullptr || bytes == 4096) added->Args({ranks, bytes});
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  // Ranks take one thread each; set before any of them is forked.
  setenv("OMP_NUM_THREADS", "1", 1);
  setenv("MKL_NUM_THREADS", "1", 1);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
