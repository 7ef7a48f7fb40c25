#include "harness/trainers/core/update.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <cstring>
#include <stdexcept>

#include "harness/trainers/comm/tensor_view.h"

namespace lockstep {
namespace {

constexpr const char* kTracedFirstMoment = "first_moment/";
constexpr const char* kTracedSecondMoment = "second_moment/";
constexpr const char* kUpdates = "updates";

/// False if the snapshot has nothing of that name.
bool copy_into(const Snapshot& snapshot, const std::string& name, at::Tensor value) {
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

void trace_parameters(const RankContext& context, Phase phase, Keep keep) {
  const ParameterList& parameters = context.task->parameters();
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    context.trace->tensor(phase, parameters.names[i], view_of(parameters.tensors[i]), Sharing::replicated, {},
                          keep);
  }
}

Update::Update(const RankContext& context)
    : context_(context), optimizer_(*context.config, context.task->parameters()) {}

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
  clip_gradients(context_.task->parameters().tensors, norm, context_.config->clip_norm);
}

void Update::apply(int64_t step, const TracedStep::Outcome& outcome, double rate, Keep keep) {
  if (outcome.not_finite) {
    trace_buffers(Phase::parameters, keep);
    trace_parameters(context_, Phase::parameters, keep);
    return;
  }
  const TrainingState state{context_.task->parameters(), optimizer_, *context_.comm, rate};
  clip(step, outcome);
  if (context_.mutant != nullptr) {
    context_.mutant->before_update(step, state);
  }
  if (context_.mutant == nullptr || context_.mutant->updates(step)) {
    optimizer_.step(rate);
  }
  if (context_.mutant != nullptr) {
    context_.mutant->after_update(step, state);
  }
  context_.task->update_buffers();
  trace_buffers(Phase::parameters, keep);
  trace_parameters(context_, Phase::parameters, keep);
  // What an update does to the moments alone shows in parameters one update later, and a forced run makes none. Whoever keeps
  // everything keeps what the next update is made from.
  if (context_.trace->keeps_whole(keep)) trace_optimizer(Phase::optimizer_state, keep);
}

void Update::trace_optimizer(Phase phase, Keep keep) {
  const std::vector<std::string>& names = context_.task->parameters().names;
  const auto trace_moments = [&](const char* prefix, const std::vector<at::Tensor>& moments) {
    for (std::size_t i = 0; i < moments.size(); ++i) {
      if (moments[i].defined()) {
        context_.trace->tensor(phase, prefix + names[i], view_of(moments[i]), Sharing::replicated, {}, keep);
      }
    }
  };
  trace_moments(kTracedFirstMoment, optimizer_.first_moments());
  trace_moments(kTracedSecondMoment, optimizer_.second_moments());
  const int64_t updates = optimizer_.updates();
  const std::vector<int64_t> shape{1};
  context_.trace->tensor(phase, kUpdates, {&updates, DType::int64, shape, {}}, Sharing::replicated, {}, keep);
}

void Update::snapshot() {
  trace_parameters(context_, Phase::snapshot, Keep::whole);
  trace_optimizer(Phase::snapshot, Keep::whole);
  trace_buffers(Phase::snapshot, Keep::whole);
}

void Update::load(const Snapshot& snapshot) {
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
        moment = context_.config->optimizer == OptimizerKind::sgd ? at::Tensor() : at::zeros_like(value);
        return;
      }
      if (!moment.defined()) {
        moment = at::zeros_like(value);
      }
      copy_into(snapshot, key, moment);
    };
    load_moment(kTracedFirstMoment + name, optimizer_.first_moments()[i]);
    load_moment(kTracedSecondMoment + name, optimizer_.second_moments()[i]);
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

}  // namespace lockstep
