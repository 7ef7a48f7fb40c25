#include "harness/trainers/core/task.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

namespace lockstep {

Optimizer::Optimizer(const RunConfig& config, const ParameterList& parameters)
    : config_(config),
      parameters_(parameters.tensors),
      first_moments_(parameters_.size()),
      second_moments_(parameters_.size()) {
  if (config.optimizer != OptimizerKind::sgd) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      first_moments_[i] = at::zeros_like(parameters_[i].detach());
      second_moments_[i] = at::zeros_like(parameters_[i].detach());
    }
  }
}

void Optimizer::step(double lr) {
  const c10::NoGradGuard no_grad;
  ++updates_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor parameter = parameters_[i].detach();
    if (config_.optimizer == OptimizerKind::sgd) {
      sgd(parameter, parameters_[i].grad(), i, lr);
    } else {
      adam(parameter, parameters_[i].grad(), i, lr);
    }
  }
}

void Optimizer::sgd(at::Tensor& parameter, at::Tensor gradient, std::size_t index, double lr) {
  if (config_.weight_decay != 0) {
    gradient = gradient.add(parameter, config_.weight_decay);
  }
  if (config_.momentum != 0) {
    if (!first_moments_[index].defined()) {
      first_moments_[index] = gradient.clone();
    } else {
      first_moments_[index].mul_(config_.momentum).add_(gradient, 1.0);
    }
    gradient = first_moments_[index];
  }
  parameter.add_(gradient, -lr);
}

void Optimizer::adam(at::Tensor& parameter, at::Tensor gradient, std::size_t index, double lr) {
  if (config_.weight_decay != 0) {
    if (config_.optimizer == OptimizerKind::adamw) {
      parameter.mul_(1 - lr * config_.weight_decay);
    } else {
      gradient = gradient.add(parameter, config_.weight_decay);
    }
  }
  const AdamNumbers numbers = adam_numbers(config_);
  at::Tensor& first = first_moments_[index];
  at::Tensor& second = second_moments_[index];
  first.lerp_(gradient, 1 - numbers.beta1);
  second.mul_(numbers.beta2).addcmul_(gradient, gradient, 1 - numbers.beta2);
  const auto t = static_cast<double>(updates_);
  const double correction1 = 1 - std::pow(numbers.beta1, t);
  const double correction2 = 1 - std::pow(numbers.beta2, t);
  const at::Tensor denominator = (second.sqrt() / std::pow(correction2, 0.5)).add_(numbers.eps);
  parameter.addcdiv_(first, denominator, -(lr / correction1));
}

at::Tensor total_gradient_norm(const std::vector<at::Tensor>& parameters) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  norms.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    norms.push_back(at::linalg_vector_norm(parameter.grad()));
  }
  return at::linalg_vector_norm(at::stack(norms));
}

void clip_gradients(const std::vector<at::Tensor>& parameters, const at::Tensor& total_norm,
                    double max_norm) {
  const c10::NoGradGuard no_grad;
  // Python's float / tensor is tensor.reciprocal() * float.
  const at::Tensor coefficient = at::clamp((total_norm + 1e-6).reciprocal() * max_norm, std::nullopt, 1.0);
  for (const at::Tensor& parameter : parameters) {
    at::Tensor gradient = parameter.grad();
    gradient.mul_(coefficient);
  }
}

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

namespace {

/// Chris Wellons' lowbias32, a 32-bit finalizer with near-ideal avalanche (nullprogram.com/blog/2018/07/31).
inline uint32_t scramble(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  x ^= x >> 16;
  return x;
}

inline float uniform(uint32_t low, uint32_t high, uint32_t position) {
  const uint32_t bits = scramble(scramble(position * 0x9E3779B9U + low) ^ high);
  return static_cast<float>(bits >> 8) * 0x1.0p-24F;
}

}  // namespace

RandomStreams::RandomStreams(RankSeed mode, int64_t seed, int rank)
    : mode_(mode), base_(stream_base(mode, seed, rank)) {}

uint64_t RandomStreams::row_key(Purpose purpose, int64_t step, int64_t sample_id, int64_t local_row) const {
  const uint64_t who = static_cast<uint64_t>(mode_ == RankSeed::keyed ? sample_id : local_row);
  return stream_row_key(base_, static_cast<uint32_t>(purpose), step, who);
}

uint64_t RandomStreams::pair_key(uint64_t row_key, int64_t column_id, int64_t local_column) const {
  return mix_key(row_key ^
                 mix_key(static_cast<uint64_t>(mode_ == RankSeed::keyed ? column_id : local_column)));
}

__attribute__((target_clones("avx2", "default"))) void fill_uniform(uint64_t key, std::span<float> out) {
  const auto low = static_cast<uint32_t>(key);
  const auto high = static_cast<uint32_t>(key >> 32);
  for (std::size_t d = 0; d < out.size(); ++d) {
    out[d] = uniform(low, high, static_cast<uint32_t>(d));
  }
}

__attribute__((target_clones("avx2", "default"))) void fill_dropout(uint64_t key, float p,
                                                                    std::span<float> out) {
  const auto low = static_cast<uint32_t>(key);
  const auto high = static_cast<uint32_t>(key >> 32);
  const float kept = 1.0F / (1.0F - p);
  for (std::size_t d = 0; d < out.size(); ++d) {
    out[d] = uniform(low, high, static_cast<uint32_t>(d)) < p ? 0.0F : kept;
  }
}

}  // namespace lockstep
