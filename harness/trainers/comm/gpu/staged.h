#pragma once
// A backend for tensors of the host around one that works in another memory: copies in, waits, copies back. It knows no CUDA.

#include <functional>

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace lockstep {

struct Staging {
  c10::intrusive_ptr<c10d::Backend> inner;
  c10::Device device;
  /// Returns when all copies and collectives that this thread began on `device` have ended.
  std::function<void()> synchronize;
  std::chrono::milliseconds timeout{60000};
};

/// Each call ends before it returns, with its work done: order and bits are the inner backend's. It takes what Comm and
/// c10d's Reducer call: all-reduce of one tensor, all-gather, broadcast.
c10::intrusive_ptr<c10d::Backend> make_staged_backend(Staging staging);

}  // namespace lockstep
