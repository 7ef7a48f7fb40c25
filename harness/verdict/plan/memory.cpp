#include "harness/verdict/plan/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "harness/base/room.h"

namespace lockstep {
namespace {

constexpr double kLibraries = 110e6;     ///< LibTorch in a process that computes
constexpr double kRealRank = 70e6;       ///< of these what a forked rank does not share, with Gloo's buffers
constexpr double kTracePart = 17e6;      ///< of a step, as the trace takes it at once
constexpr double kEmulatedRank = 0.3e6;  ///< a thread, its communicators and its trace's buffer

/// Of one rank: parameters and what is kept of each, and a part of the trace on its way to the file.
double parameter_bytes(const RunConfig& config) {
  double elements = 0, largest = 0;
  for (const ModelParameter& parameter : spec_of(config).parameters(config, config.data.channels)) {
    elements += static_cast<double>(parameter.elements());
    largest = std::max(largest, static_cast<double>(parameter.elements()));
  }
  const double of_number = computed_precision(config) == Precision::float64 ? 8 : 4;
  // Itself, its gradient, what the optimizer keeps and buckets; sums of exact arithmetic have digits of 64 bits.
  const double copies = config.optimizer == OptimizerKind::sgd ? 4 : 6;
  const double digits = config.arithmetic == Arithmetic::exact ? (of_number == 8 ? 54 : 8) * 8.0 : 0;
  const bool whole = config.forced.on() || config.trace == TraceLevel::full;
  constexpr double kCopiesOfPart = 4;  // records, the frame made of them, and the room in which both grew
  const double traced = whole ? kCopiesOfPart * std::min(3 * elements * of_number, kTracePart + largest * of_number) : 0;
  return elements * (copies * of_number + digits) + traced;
}

}  // namespace

RunCosts costs_of(const RunConfig& config) {
  const auto costs = spec_of(config).costs;
  return costs == nullptr ? RunCosts{} : costs(config);
}

double modelled_memory_bytes(const RunConfig& config) {
  const RunCosts costs = costs_of(config);
  const double ranks = config.layout.world_size, of_rank = parameter_bytes(config) + costs.held_bytes;
  if (config.backend == Backend::gloo && config.layout.world_size > 1) {
    return kLibraries + ranks * (kRealRank + of_rank + costs.computing_bytes + costs.data_bytes);
  }
  const double at_once = std::min<double>(ranks, emulated_turns());
  return kLibraries + ranks * (kEmulatedRank + of_rank) + at_once * costs.computing_bytes + 2 * costs.data_bytes;
}

double machine_memory_bytes() {
  const double machine = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  double group = 0;
  std::ifstream("/sys/fs/cgroup/memory.max") >> group;  // "max": none
  return group > 0 ? std::min(group, machine) : machine;
}

}  // namespace lockstep
