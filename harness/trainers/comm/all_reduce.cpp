#include "harness/trainers/comm/all_reduce.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "harness/base/machine.h"
#include "harness/trainers/comm/comm.h"

namespace lockstep::all_reduce {
namespace {

constexpr int64_t kPeriod = 251;

/// Element i of what a rank brings. Sums of these over 65,000 ranks are exact in float32: every order of adding gives the same bits.
float brought(int rank, int64_t i) { return static_cast<float>((i * 7 + rank * int64_t{13} + 1) % kPeriod); }

at::Tensor brought_tensor(int rank, int64_t count) {
  at::Tensor tensor = at::empty({count}, at::kFloat);
  auto* const values = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) values[i] = brought(rank, i);
  return tensor;
}

}  // namespace

Answer answer_to(const Ask& ask, Comm& comm, int64_t spoil) {
  const int64_t count = std::max<int64_t>(ask.bytes / static_cast<int64_t>(sizeof(float)), 1);
  std::array<float, kPeriod> sums{};
  for (int rank = 0; rank < comm.world_size(); ++rank) {
    for (int64_t i = 0; i < kPeriod; ++i) sums[static_cast<std::size_t>(i)] += brought(rank, i);
  }
  Answer answer;
  const auto checked_call = [&] {
    const at::Tensor tensor = brought_tensor(comm.rank(), count);
    comm.all_reduce_sum(tensor, "checked");
    auto* const values = tensor.mutable_data_ptr<float>();
    if (spoil >= 0 && spoil < count) values[spoil] += 1;
    for (int64_t i = 0; i < count; ++i) {
      const float expected = sums[static_cast<std::size_t>(i % kPeriod)];
      if (values[i] == expected || answer.wrong++ > 0) continue;
      std::array<char, 32> got{};
      std::snprintf(got.data(), got.size(), "%g", values[i]);
      answer.first_wrong = i;
      answer.got = got.data();
      answer.expected = expected;
    }
  };
  checked_call();
  const at::Tensor tensor = brought_tensor(comm.rank(), count);
  comm.barrier("before");
  const double began = monotonic_s();
  for (int64_t k = 0; k < ask.calls; ++k) comm.all_reduce_sum(tensor, "timed");
  answer.seconds = (monotonic_s() - began) / static_cast<double>(std::max<int64_t>(ask.calls, 1));
  checked_call();
  return answer;
}

}  // namespace lockstep::all_reduce
