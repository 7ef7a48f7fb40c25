#include "harness/trainers/core/update.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "harness/plan/config/canonical.h"
#include "harness/trainers/comm/ledger.h"

namespace lockstep {
namespace {

constexpr const char* kTracedFirstMoment = "first_moment/";
constexpr const char* kTracedSecondMoment = "second_moment/";
constexpr const char* kUpdates = "updates";
constexpr const char* kTracedAverage = "average/";

/// False if the snapshot has nothing of that name.
bool copy_into(const SnapshotBytes& snapshot, const std::string& name, at::Tensor value) {
  const auto found = snapshot.find(name);
  if (found == snapshot.end()) {
    return false;
  }
  if (found->second.size() != value.nbytes()) {
    throw std::runtime_error(c10::str("the snapshot holds ", name, " in another shape than this model's"));
  }
  std::memcpy(value.mutable_data_ptr(), found->second.data(), value.nbytes());
  return true;
}

}  // namespace

void trace_parameters(const RankContext& context, Phase phase, Keep keep, const Shards* shards) {
  const ParameterList& parameters = context.task->parameters();
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    const at::Tensor& whole = parameters.tensors[i];
    const at::Tensor part = shards == nullptr ? whole : shards->own(i, whole.detach());
    TensorView view = view_of(part);
    if (shards != nullptr) view.placement = &shards->placement(i);
    context.trace->tensor(phase, parameters.names[i], view, shards != nullptr ? Sharing::own : Sharing::replicated, {}, keep);
  }
}

namespace {

/// The parameters themselves, or leaves that are views of this rank's part of each.
ParameterList parts_of(const ParameterList& parameters, const std::optional<Shards>& shards) {
  if (!shards) return parameters;
  ParameterList parts;
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    parts.names.push_back(parameters.names[i]);
    parts.tensors.push_back(shards->own(i, parameters.tensors[i].detach()));
  }
  return parts;
}

}  // namespace

Update::Update(const RankContext& context)
    : context_(context),
      shards_(shards_of(*context.config, context.task->parameters(), *context.comm)),
      parts_(parts_of(context.task->parameters(), shards_)),
      optimizer_(*context.config, parts_) {
  if (context.config->average_decay <= 0) return;
  for (const at::Tensor& parameter : context.task->parameters().tensors) averages_.push_back(parameter.detach().clone());
}

void Update::trace_buffers(Phase phase, Keep keep) {
  for (const NamedBuffer& buffer : context_.task->buffers()) {
    context_.trace->tensor(phase, buffer.name, view_of(buffer.value), Sharing::replicated, {}, keep);
  }
}

double Update::learning_rate(int64_t step) const {
  const double rate = lockstep::learning_rate(*context_.config, step);
  return context_.mutant == nullptr ? rate : context_.mutant->learning_rate(step, rate);
}

void Update::clip(int64_t step, const TracedStep::Outcome& outcome) {
  if (context_.config->clip_norm <= 0) {
    return;
  }
  at::Tensor norm = outcome.gradient_norm_tensor;
  if (context_.mutant != nullptr) {
    const double changed = context_.mutant->clip_norm(step, outcome.gradient_norm);
    if (changed < 0) {
      return;
    }
    if (changed != outcome.gradient_norm) {
      norm = at::full_like(norm, changed);
    }
  }
  clip_gradients(parts_.tensors, norm, context_.config->clip_norm);
}

/// The gradient of a part is the part of the gradient.
void Update::take_part_gradients() {
  if (!shards_) return;
  const ParameterList& parameters = context_.task->parameters();
  for (std::size_t i = 0; i < parts_.tensors.size(); ++i) {
    parts_.tensors[i].mutable_grad() = shards_->own(i, parameters.tensors[i].grad());
  }
}

void Update::gather_parameters() {
  if (!shards_) return;
  const c10::NoGradGuard no_grad;
  ParameterList& parameters = context_.task->parameters();
  const std::vector<at::Tensor> wholes = shards_->gathered(*context_.comm, parts_.tensors, "update.parameters");
  for (std::size_t i = 0; i < wholes.size(); ++i) {
    if (shards_->is_sharded(i)) parameters.tensors[i].detach().copy_(wholes[i]);
  }
}

void Update::average(int64_t step) {
  if (averages_.empty()) return;
  const c10::NoGradGuard no_grad;
  const double configured = context_.config->average_decay;
  const double decay = context_.mutant == nullptr ? configured : context_.mutant->average_decay(step, configured);
  const ParameterList& parameters = context_.task->parameters();
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    averages_[i].mul_(decay).add_(parameters.tensors[i].detach(), 1 - decay);
  }
}

/// Where updates may be left out, each rank says whether it leaves out this one.
void Update::trace_skipped(bool skipped) {
  if (context_.config->watch.nan_guard != NanGuard::skip) return;
  context_.trace->scalar(Phase::control, "skipped", skipped ? 1 : 0, Sharing::own);
}

void Update::update(int64_t step, const TracedStep::Outcome& outcome, double rate) {
  const TrainingState state{context_.task->parameters(), optimizer_, *context_.comm, rate};
  take_part_gradients();
  clip(step, outcome);
  if (context_.mutant != nullptr) {
    context_.mutant->before_update(step, state);
  }
  const bool updates = context_.mutant == nullptr || context_.mutant->updates(step);
  trace_skipped(!updates);
  if (updates) {
    optimizer_.step(rate);
  }
  if (context_.mutant != nullptr) {
    context_.mutant->after_update(step, state);
  }
  gather_parameters();
  average(step);
  context_.task->update_buffers();
}

void Update::apply(int64_t step, const TracedStep::Outcome& outcome, double rate, Keep keep) {
  if (outcome.not_finite) {
    trace_skipped(true);
  } else {
    update(step, outcome, rate);
  }
  trace_buffers(Phase::parameters, keep);
  trace_parameters(context_, Phase::parameters, keep, shards_ ? &*shards_ : nullptr);
  trace_averages(Phase::averaged_weights, "", keep);
  // What an update does to the moments alone shows in parameters one update later, and a forced run makes none. Whoever keeps
  // everything keeps what the next update is made from.
  if (!outcome.not_finite && context_.trace->keeps_whole(keep)) {
    trace_optimizer(Phase::optimizer_state, keep, {optimizer_.first_moments(), optimizer_.second_moments()}, true);
  }
}

void Update::trace_averages(Phase phase, const std::string& prefix, Keep keep) {
  const std::vector<std::string>& names = context_.task->parameters().names;
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    context_.trace->tensor(phase, prefix + names[i], view_of(averages_[i]), Sharing::replicated, {}, keep);
  }
}

Update::OfOptimizer Update::whole_moments() {
  OfOptimizer moments{optimizer_.first_moments(), optimizer_.second_moments()};
  if (!shards_) return moments;
  return {shards_->gathered(*context_.comm, moments.first_moments, "update.moments"),
          shards_->gathered(*context_.comm, moments.second_moments, "update.moments")};
}

/// `of_parts`: where ranks share the update, each has its own part.
void Update::trace_optimizer(Phase phase, Keep keep, const OfOptimizer& moments, bool of_parts) {
  const std::vector<std::string>& names = context_.task->parameters().names;
  const auto trace_moments = [&](const char* prefix, const std::vector<at::Tensor>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined()) continue;
      TensorView view = view_of(tensors[i]);
      if (shards_ && of_parts) view.placement = &shards_->placement(i);
      context_.trace->tensor(phase, prefix + names[i], view, shards_ && of_parts ? Sharing::own : Sharing::replicated, {}, keep);
    }
  };
  trace_moments(kTracedFirstMoment, moments.first_moments);
  trace_moments(kTracedSecondMoment, moments.second_moments);
  const int64_t updates = optimizer_.updates();
  const std::vector<int64_t> shape{1};
  context_.trace->tensor(phase, kUpdates, {&updates, DType::int64, shape, {}}, Sharing::replicated, {}, keep);
}

void Update::snapshot() {
  trace_parameters(context_, Phase::snapshot, Keep::whole);
  trace_optimizer(Phase::snapshot, Keep::whole, whole_moments(), false);
  trace_averages(Phase::snapshot, kTracedAverage, Keep::whole);
  trace_buffers(Phase::snapshot, Keep::whole);
}

void Update::load(const SnapshotBytes& snapshot) {
  const c10::NoGradGuard no_grad;
  ParameterList& parameters = context_.task->parameters();
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    const std::string& name = parameters.names[i];
    const at::Tensor value = parameters.tensors[i].detach();
    if (!copy_into(snapshot, name, value)) {
      throw std::runtime_error("the snapshot does not hold " + name);
    }
    const auto load_moment = [&](const std::string& key, at::Tensor& moment) {
      if (snapshot.find(key) == snapshot.end()) {
        // Before the first update sgd has none, and adam none where the snapshot is sgd's.
        moment = context_.config->optimizer == OptimizerKind::sgd ? at::Tensor() : at::zeros_like(parts_.tensors[i].detach());
        return;
      }
      at::Tensor whole = shards_ || !moment.defined() ? at::zeros_like(value) : moment;
      copy_into(snapshot, key, whole);
      moment = shards_ ? shards_->own(i, whole).clone() : whole;
    };
    load_moment(kTracedFirstMoment + name, optimizer_.first_moments()[i]);
    load_moment(kTracedSecondMoment + name, optimizer_.second_moments()[i]);
    // Of a run that keeps none, an average begins here.
    if (!averages_.empty() && !copy_into(snapshot, kTracedAverage + name, averages_[i])) averages_[i].copy_(value);
  }
  if (const auto found = snapshot.find(kUpdates); found != snapshot.end()) {
    std::memcpy(&optimizer_.updates(), found->second.data(), sizeof(int64_t));
  }
  // What the other run does not keep begins as it does in a run of this config.
  for (const NamedBuffer& buffer : context_.task->buffers()) {
    const at::Tensor& first = first_buffers_.try_emplace(buffer.name, buffer.value.clone()).first->second;
    if (!copy_into(snapshot, buffer.name, buffer.value)) buffer.value.copy_(first);
  }
}

namespace {

constexpr uint64_t kRowOrder = 0x726f776f72646572;  // "roworder"
constexpr uint64_t kUnitSigns = 0x756e6974;         // "unit"

/// Another order of rows [begin, end): sorted by keyed numbers, turned by one if that changes nothing.
void reorder(std::vector<int64_t>& rows, std::size_t begin, std::size_t end, uint64_t key) {
  std::vector<std::pair<uint64_t, int64_t>> drawn;
  for (std::size_t row = begin; row < end; ++row) {
    drawn.emplace_back(mix_key(key ^ static_cast<uint64_t>(row)), rows[row]);
  }
  const bool same = std::is_sorted(drawn.begin(), drawn.end());
  std::sort(drawn.begin(), drawn.end());
  if (same && drawn.size() > 1) {
    std::rotate(drawn.begin(), drawn.begin() + 1, drawn.end());
  }
  for (std::size_t row = begin; row < end; ++row) {
    rows[row] = drawn[row - begin].second;
  }
}

template <typename T>
void move_elements(const at::Tensor& tensor, uint64_t key) {
  T* values = tensor.mutable_data_ptr<T>();
  const auto elements = static_cast<std::size_t>(tensor.numel());
  for (std::size_t i = 0; i < elements; ++i) {
    const bool up = (mix_key(key ^ static_cast<uint64_t>(i)) & 1) != 0;
    const T toward = up ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity();
    values[i] = std::nextafter(values[i], toward);
  }
}

}  // namespace

RowsOf perturbed(RowsOf rows_of, const RunConfig& config) {
  if (config.perturb != Perturbation::row_order) {
    return rows_of;
  }
  return [rows_of = std::move(rows_of), key = mix_key(static_cast<uint64_t>(config.seed) ^ kRowOrder),
          micro_steps = static_cast<std::size_t>(config.accumulation)](int64_t step, int rank) {
    std::vector<int64_t> rows = rows_of(step, rank);
    const std::size_t all = rows.size();
    const uint64_t of_rank =
        mix_key(mix_key(key ^ static_cast<uint64_t>(step)) ^ static_cast<uint64_t>(rank));
    for (std::size_t micro = 0; micro < micro_steps; ++micro) {
      reorder(rows, micro * all / micro_steps, (micro + 1) * all / micro_steps, of_rank);
    }
    return rows;
  };
}

void move_by_one_unit(ParameterList& parameters, int64_t seed) {
  const uint64_t key = mix_key(static_cast<uint64_t>(seed) ^ kUnitSigns);
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    const at::Tensor tensor = parameters.tensors[i].detach();
    const uint64_t of_tensor = mix_key(key ^ static_cast<uint64_t>(i));
    if (tensor.scalar_type() == at::kDouble) {
      move_elements<double>(tensor, of_tensor);
    } else {
      move_elements<float>(tensor, of_tensor);
    }
  }
}

}  // namespace lockstep
