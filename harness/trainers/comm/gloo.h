#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/group.h"
#include "harness/trainers/comm/comm.h"
#include "harness/trainers/comm/gloo_options.h"

// Real ranks: one process each, over Gloo.

namespace lockstep {

/// Meets the other ranks. Throws std::runtime_error when they do not come within the timeout.
std::unique_ptr<Comm> make_gloo_comm(const GlooOptions& options);

// Groups for what ranks agree on beside training (harness/lib/checkpoint/group.h), over Gloo: each has a process group and a
// thread of its own, so that an asynchronous save never interleaves with training's collectives.

/// How ranks see each other get on while they wait.
struct PeerSigns {
  std::function<uint64_t()> count;  ///< changes whenever another rank gets on
  std::function<void()> report;     ///< this rank gets on; never waits
};

/// One group for each name, over a store file of its own. Meets the other ranks; throws std::runtime_error when they do
/// not come within the timeout.
std::vector<std::unique_ptr<checkpoint::Group>> make_gloo_groups(const GlooOptions& options,
                                                                 const std::vector<std::string>& names,
                                                                 const PeerSigns& signs);

// Comm over c10d process groups: what Gloo and emulated ranks share. For harness/trainers/comm alone: it needs the
// c10d headers.

/// What a step exchanges beside gradients has a group of its own, so that it never interleaves with their buckets.
struct ProcessGroups {
  c10::intrusive_ptr<c10d::ProcessGroup> data;
  c10::intrusive_ptr<c10d::ProcessGroup> gradients;
  std::chrono::milliseconds timeout{60000};
  /// All-gathers and all-reduces of integers up to so many bytes of all ranks together go to rank 0 and from there to
  /// all: 2 (V - 1) messages instead of a ring's V (V - 1) and more. Nothing is rounded on either way.
  int64_t by_root_bytes = 0;
};

std::unique_ptr<Comm> make_process_group_comm(ProcessGroups groups);

/// The store by which the ranks of `options` meet: a file, or one TCP store for the whole process.
c10::intrusive_ptr<c10d::Store> make_store(const GlooOptions& options);

/// Meets the other ranks in a process group of that name.
c10::intrusive_ptr<c10d::ProcessGroup> make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const char* name, const GlooOptions& options);

/// c10d::Reducer over the group, with PyTorch's rules for buckets.
std::unique_ptr<GradientReducer> make_c10d_reducer(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                   const std::vector<at::Tensor>& parameters,
                                                   const std::vector<std::string>& names,
                                                   const ReducerOptions& options);

}  // namespace lockstep
