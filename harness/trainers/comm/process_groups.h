#pragma once
// Comm over c10d process groups: what Gloo and emulated ranks share. For harness/trainers/comm alone: it needs the
// c10d headers.

#include <chrono>
#include <memory>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/comm/gloo_options.h"

namespace lockstep {

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
