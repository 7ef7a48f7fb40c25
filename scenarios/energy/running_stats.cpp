#include "scenarios/energy/running_stats.h"

#include <ATen/ATen.h>

namespace lockstep {

RunningStats::RunningStats() : buffer_(at::zeros({1}, at::kDouble)) {}

void RunningStats::update(Comm& comm, double mean, int64_t rows) {
  at::Tensor sums = at::empty({2}, at::kDouble);
  double* sum = sums.mutable_data_ptr<double>();
  sum[0] = mean * static_cast<double>(rows);
  sum[1] = static_cast<double>(rows);
  comm.all_reduce_sum(sums, "stats.energy");
  double* buffer = buffer_.mutable_data_ptr<double>();
  if (comm.rank() == 0 && sum[1] > 0) {
    buffer[0] = 0.9 * buffer[0] + 0.1 * (sum[0] / sum[1]);
  }
  comm.broadcast(buffer_, 0, "stats.buffer");
}

}  // namespace lockstep
