#pragma once
// Which part of each parameter a rank updates, where ranks share the update (update: sharded).
//
// V = world size, R = rows of a parameter (dimension 0).

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/core/task.h"
#include "harness/verdict/config/run_config.h"
#include "harness/verdict/trace/record.h"

namespace lockstep {

/// Sums of squares of a gradient's elements, of which the norm of the whole gradient is made.
struct SquaredNorms {
  double own_shards = 0;  ///< of this rank's shards
  double all_shards = 0;  ///< of all ranks' shards
  double replicated = 0;  ///< of the tensors that every rank holds whole
};

/// A parameter's rows are cut as torch.chunk cuts them: ceil(R / V) each, the last ranks have fewer or none. One with fewer rows
/// than ranks, or without dimensions, stays whole on every rank, which all update it alike.
class Shards {
 public:
  Shards(const ParameterList& parameters, int rank, int world_size);

  std::size_t size() const { return placements_.size(); }
  bool is_sharded(std::size_t parameter) const { return placements_[parameter].shard; }
  /// As traces describe it.
  const Placement& placement(std::size_t parameter) const { return placements_[parameter]; }
  /// A view of this rank's rows of a tensor of the parameter's shape; of a parameter that is not sharded the tensor itself.
  at::Tensor own(std::size_t parameter, const at::Tensor& whole) const;
  /// Zeroes what other ranks own.
  void drop_others(std::size_t parameter, at::Tensor whole) const;
  /// Collective: the whole tensors of all ranks' parts, in the parameters' order and of one type; undefined ones stay so. What is not
  /// sharded comes back itself.
  std::vector<at::Tensor> gathered(Comm& comm, const std::vector<at::Tensor>& parts, std::string_view tag) const;
  /// Collective ("update.norm"): of the gradients in `parts`, in float64.
  SquaredNorms squared_norms(Comm& comm, const std::vector<at::Tensor>& parts) const;

 private:
  int64_t rows_at_most(std::size_t parameter) const;

  int rank_, world_size_;
  std::vector<Placement> placements_;
  std::vector<int64_t> rows_;  ///< that this rank owns, by parameter
};

/// Nothing where every rank makes the whole update, or is alone.
std::optional<Shards> shards_of(const RunConfig& config, const ParameterList& parameters, const Comm& comm);

}  // namespace lockstep
