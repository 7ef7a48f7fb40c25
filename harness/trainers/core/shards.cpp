#include "harness/trainers/core/shards.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace lockstep {

Shards::Shards(const ParameterList& parameters, int rank, int world_size) : rank_(rank), world_size_(world_size) {
  for (const at::Tensor& parameter : parameters.tensors) {
    Placement placement;
    placement.whole = parameter.sizes().vec();
    placement.offset.assign(placement.whole.size(), 0);
    placement.shard = world_size > 1 && parameter.dim() > 0 && parameter.size(0) >= world_size;
    placements_.push_back(std::move(placement));
    rows_.push_back(parameter.dim() > 0 ? parameter.size(0) : 0);
    if (!placements_.back().shard) continue;
    const int64_t each = rows_at_most(placements_.size() - 1), all = rows_.back();
    const int64_t first = std::min(rank * each, all);
    placements_.back().offset[0] = first;
    rows_.back() = std::min(each, all - first);
  }
}

int64_t Shards::rows_at_most(std::size_t parameter) const {
  return (placements_[parameter].whole[0] + world_size_ - 1) / world_size_;
}

at::Tensor Shards::own(std::size_t parameter, const at::Tensor& whole) const {
  if (!is_sharded(parameter)) return whole;
  return whole.narrow(0, placements_[parameter].offset[0], rows_[parameter]);
}

void Shards::drop_others(std::size_t parameter, at::Tensor whole) const {
  if (!is_sharded(parameter)) return;
  const int64_t first = placements_[parameter].offset[0], behind = first + rows_[parameter];
  whole.narrow(0, 0, first).zero_();
  whole.narrow(0, behind, whole.size(0) - behind).zero_();
}

std::vector<at::Tensor> Shards::gathered(Comm& comm, const std::vector<at::Tensor>& parts, std::string_view tag) const {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> wholes = parts, sent;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].defined() || !is_sharded(i)) continue;
    // Ranks send equally much: those that have fewer rows fill up with zeros.
    std::vector<int64_t> shape = placements_[i].whole;
    shape[0] = rows_at_most(i);
    at::Tensor padded = at::zeros(shape, parts[i].options().requires_grad(false));
    padded.narrow(0, 0, rows_[i]).copy_(parts[i].detach());
    sent.push_back(padded.flatten());
  }
  if (sent.empty()) return wholes;
  const at::Tensor all_VN = comm.all_gather(at::cat(sent), tag);
  int64_t begin = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].defined() || !is_sharded(i)) continue;
    std::vector<int64_t> shape = placements_[i].whole;
    const int64_t rows = shape[0];
    shape[0] = rows_at_most(i) * world_size_;
    const int64_t elements = c10::multiply_integers(shape) / world_size_;
    wholes[i] = all_VN.narrow(1, begin, elements).reshape(shape).narrow(0, 0, rows).contiguous();
    begin += elements;
  }
  return wholes;
}

SquaredNorms Shards::squared_norms(Comm& comm, const std::vector<at::Tensor>& parts) const {
  const c10::NoGradGuard no_grad;
  SquaredNorms norms;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double squares = parts[i].to(at::kDouble).square().sum().item<double>();
    (is_sharded(i) ? norms.own_shards : norms.replicated) += squares;
  }
  const at::Tensor sum = at::full({1}, norms.own_shards, at::kDouble);
  comm.all_reduce_sum(sum, "update.norm");
  norms.all_shards = sum.item<double>();
  return norms;
}

std::optional<Shards> shards_of(const RunConfig& config, const ParameterList& parameters, const Comm& comm) {
  if (config.update != UpdatePartition::sharded || comm.world_size() == 1) return std::nullopt;
  return Shards(parameters, comm.rank(), comm.world_size());
}

}  // namespace lockstep
