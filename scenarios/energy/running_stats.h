#pragma once
// A buffer beside the parameters: the running mean of the rows' energies over all ranks. It takes a sum over
// the ranks and a broadcast a step, as normalisation layers and reward statistics do.

#include <ATen/core/Tensor.h>

#include "harness/comm/comm.h"
#include "harness/train/exact_sum.h"

namespace lockstep {

class RunningStats {
 public:
  RunningStats();
  /// Adds a step's `rows` energies of mean `mean` on this rank: rank 0 updates the buffer from the sum over
  /// ranks, buffer = 0.9 buffer + 0.1 mean, and broadcasts it.
  void update(Comm& comm, double mean, int64_t rows);
  /// The same from the sum of the rank's energies, added over ranks without rounding.
  void update_exactly(Comm& comm, ExactSum& sum, int64_t rows);
  /// [1] float64
  at::Tensor& buffer() { return buffer_; }

 private:
  /// On every rank: the sum and count of all of them.
  void take_up(Comm& comm, double sum, double rows);

  at::Tensor buffer_;
};

/// Of the buffer in traces.
inline constexpr const char* kRunningMean = "buffer/energy_mean";

}  // namespace lockstep
