#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "harness/judge/trace/record.h"
#include "harness/judge/trace/writer.h"
#include "harness/lib/flight/ring.h"
#include "harness/trainers/comm/comm.h"

// The ledger of collectives: a decorator that records what went in and what came out, and heartbeats before it
// waits.

namespace lockstep {

/// Called with the operation ("all_gather loss.candidates") before a rank waits in it.
using OperationHeartbeat = std::function<void(const std::string& operation)>;

/// What a rank's communication has cost so far, traced or not.
struct CommunicationMeter {
  double seconds = 0;  ///< in which the rank did nothing but communicate: in collectives, and at the end of
                       ///< backward passes, where it waits for reductions that those did not hide
  double received_bytes =
      0;  ///< from other ranks; a ring all-reduce over V ranks brings 2 (V - 1) / V of its tensor
};

/// Is told of each collective, one at a time.
class CollectiveWatch {
 public:
  virtual ~CollectiveWatch() = default;
  /// The rank is about to wait in it. Group, op, tag, dtype, root and shape are given.
  virtual void enter(const flight::Entry& what) = 0;
  /// It has left the one that it entered last.
  virtual void leave() = 0;
};

/// Wraps `inner`. `trace`, and `meter` and `watch` if there are any, must outlive the result; records are written in call
/// order.
std::unique_ptr<Comm> make_ledger_comm(std::unique_ptr<Comm> inner, TraceWriter& trace, OperationHeartbeat heartbeat,
                                       CommunicationMeter* meter = nullptr, CollectiveWatch* watch = nullptr);

// at::Tensor as the torch-free tracer sees it.

/// Throws std::invalid_argument for types that traces do not know.
DType dtype_of(const at::Tensor& tensor);

/// `tensor` must be contiguous and outlive the view. `row_positions`: see TensorView.
TensorView view_of(const at::Tensor& tensor, std::span<const int64_t> row_positions = {});

// A decorator that lets ranks compare what they are about to call before anything of it moves.

/// Before each collective every rank sends a header of a fixed size: operation, reduction, root, type, shape, step, tag and its
/// number in this communicator. Where headers differ, every rank throws the same std::runtime_error, which names the ranks that
/// differ from most, their call and that of the others; of equally many it names those without rank 0. One more all-gather of
/// 256 bytes a collective. Rows that are gathered by gather_rows may differ in number: they are padded before they are sent.
std::unique_ptr<Comm> make_checked_comm(std::unique_ptr<Comm> inner, std::function<int64_t()> step);

// One process: every collective is the identity.

std::unique_ptr<Comm> make_solo_comm();

}  // namespace lockstep
