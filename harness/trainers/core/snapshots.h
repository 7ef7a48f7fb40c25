#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/judge/trace/reader.h"

// States that a run kept in its trace, to go on from or to compute at.

namespace lockstep {

/// Raw values by name, as a snapshot in a trace holds them: parameters by their names, "first_moment/NAME",
/// "second_moment/NAME", "updates", buffers.
using SnapshotBytes = std::map<std::string, std::vector<std::byte>>;

/// Of a trace, one after the other, so that a process of many ranks holds few of them.
class SnapshotReader {
 public:
  /// `wide`: what is kept in float32 is given in float64.
  explicit SnapshotReader(const std::string& trace_path, bool wide = false);
  /// Steps are asked for in their order. Throws std::runtime_error naming one of which the trace holds none.
  SnapshotBytes at(int64_t step);

 private:
  std::string path_;
  TraceReader reader_;
  bool wide_;
};

// What a forward pass keeps for its backward pass, and what the process holds.

/// Bytes of the storages that the graph behind `loss` has saved, each once, but for those of `parameters`:
/// exact, and the same at every run. Walks the graph, so it is asked once and not at every step.
int64_t kept_bytes(const at::Tensor& loss, const std::vector<at::Tensor>& parameters);

/// Resident memory of this process, from /proc/self/statm; 0 where there is none.
int64_t resident_bytes();

}  // namespace lockstep
