#pragma once
// Everything that ranks exchange. A scenario's code cannot tell the implementations apart.
//
// V = world size, b = rows of this rank.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct ReducerOptions {
  int64_t bucket_cap_bytes = 0;  ///< 0: PyTorch's default, {1 MiB, 25 MiB}
  bool gradient_as_bucket_view = false;
  bool find_unused_parameters = false;
  /// A rank keeps its part of the sums alone: the ledger calls the reduction of a bucket a reduce_scatter. What adds is the all-reduce
  /// still, as in PyTorch's own reduce_scatter over Gloo, so that a part has the bits that it has in the whole.
  bool scatters = false;
};

/// A bucket of gradients, reduced together.
struct GradientBucket {
  std::vector<std::size_t> parameters;  ///< indices into the parameter list, in the bucket's order
  int64_t elements = 0;
};

/// Averages gradients over the ranks during backward, as PyTorch's DistributedDataParallel does.
class GradientReducer {
 public:
  virtual ~GradientReducer() = default;
  /// Before each forward pass; rebuilds the buckets once, in the order in which gradients became ready.
  virtual void before_forward() = 0;
  /// Between forward and backward. `outputs` matter only if unused parameters are to be found.
  virtual void before_backward(const std::vector<at::Tensor>& outputs) = 0;
  /// Buckets of the backward pass that has just ended, in the order of their reduction.
  virtual std::vector<GradientBucket> buckets() const = 0;
  /// After backward, with fingerprints of each parameter's gradient before and after the reduction (empty if
  /// untraced).
  virtual void after_backward(std::span<const uint64_t> local_hashes,
                              std::span<const uint64_t> reduced_hashes) = 0;
};

/// Collectives among V ranks. All ranks call the same operations in the same order; `tag` says what for.
/// Every call ends within the run's timeout or throws std::runtime_error naming operation and tag.
class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  /// Sums in place; every rank gets the same bits.
  virtual void all_reduce_sum(at::Tensor tensor, std::string_view tag) = 0;
  /// The maximum of each element, in place. Only a planted bug calls it: in every library it stands beside
  /// the sum, and may be mistaken for it.
  virtual void all_reduce_max(at::Tensor tensor, std::string_view tag);
  /// Contiguous tensors of one shape and type -> [V, ...], rank r's at index r. No gradient flows through it.
  virtual at::Tensor all_gather(const at::Tensor& tensor, std::string_view tag) = 0;
  virtual void broadcast(at::Tensor tensor, int root, std::string_view tag) = 0;
  virtual void barrier(std::string_view tag) = 0;

  /// At most one reducer lives per parameter list. Parameters must require gradients and be equal on all
  /// ranks.
  virtual std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>& parameters,
                                                            const std::vector<std::string>& names,
                                                            const ReducerOptions& options) = 0;
};

/// Rows gathered from all ranks, padded to the largest count.
struct GatheredRows {
  std::vector<at::Tensor> columns;  ///< each [V * max_b, ...], in the order given
  at::Tensor valid;                 ///< [V * max_b] bool; false: padding
  int64_t offset = 0;               ///< where this rank's rows begin
  int64_t total_rows = 0;           ///< sum of b over the ranks
};

/// Gathers tensors that share dimension 0 (rows) from all ranks. A fixed-size header goes first, so that a
/// rank whose shapes, types, step or tag differ is named on every rank (std::runtime_error) before any
/// payload moves. Data only: no gradient flows through it. At most 8 tensors of at most 6 dimensions.
GatheredRows gather_rows(Comm& comm, const std::vector<at::Tensor>& tensors, int64_t step,
                         std::string_view tag);

}  // namespace lockstep
