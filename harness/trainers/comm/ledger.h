#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/judge/trace/record.h"
#include "harness/judge/trace/writer.h"
#include "harness/lib/flight/ring.h"
#include "harness/trainers/comm/comm.h"

// The ledger of collectives: a decorator that records what went in and what came out, and heartbeats before it
// waits.

namespace lockstep {

/// One call of a collective.
struct CollectiveCall {
  std::string_view op, reduction;  ///< "all_reduce", "sum"
  std::string_view tag;
  at::Tensor tensor = {};  ///< what goes in, and, but for all_gather, comes out; undefined: nothing does
  int root = -1;
};

/// Hands every collective on to another communicator, through one place.
class CommAround : public Comm {
 public:
  explicit CommAround(std::unique_ptr<Comm> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  void all_reduce_sum(at::Tensor tensor, std::string_view tag) override;
  void all_reduce_max(at::Tensor tensor, std::string_view tag) override;
  at::Tensor all_gather(const at::Tensor& tensor, std::string_view tag) override;
  void broadcast(at::Tensor tensor, int root, std::string_view tag) override;
  void barrier(std::string_view tag) override;
  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>& parameters, const std::vector<std::string>& names,
                                                    const ReducerOptions& options) override {
    return inner_->reduce_gradients(parameters, names, options);
  }

 protected:
  /// `run` makes the call and returns what came out of it.
  using Run = std::function<at::Tensor()>;
  virtual at::Tensor around(const CollectiveCall& /*call*/, const Run& run) { return run(); }

  const std::unique_ptr<Comm> inner_;
};

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
