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
  take_up(comm, sum[0], sum[1]);
}

void RunningStats::update_exactly(Comm& comm, ExactSum& sum, int64_t rows) {
  // One range for all ranks and steps: what is sent has one shape.
  const DigitRange all = ExactSum::whole(at::kDouble);
  const at::Tensor sent =
      at::cat({sum.digits(all).flatten(), at::full({1}, rows, at::kLong)}).contiguous();
  comm.all_reduce_sum(sent, "stats.energy");
  sum.set_digits(all, sent.narrow(0, 0, sent.numel() - 1));
  take_up(comm, sum.rounded(0), static_cast<double>(sent[-1].item<int64_t>()));
}

void RunningStats::take_up(Comm& comm, double sum, double rows) {
  double* buffer = buffer_.mutable_data_ptr<double>();
  if (comm.rank() == 0 && rows > 0) {
    buffer[0] = 0.9 * buffer[0] + 0.1 * (sum / rows);
  }
  comm.broadcast(buffer_, 0, "stats.buffer");
}

}  // namespace lockstep
