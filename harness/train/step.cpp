#include "harness/train/step.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "harness/comm/tensor_view.h"
#include "harness/train/optimizer.h"

namespace lockstep {

TracedStep::TracedStep(const RankContext& context) : context_(context) {
  ParameterList& parameters = context.task->parameters();
  const ReducerOptions options{context.config->bucket_cap_bytes, context.config->gradient_as_bucket_view,
                               context.config->find_unused_parameters};
  reducer_ = context.comm->reduce_gradients(parameters.tensors, parameters.names, options);
  local_hashes_.resize(parameters.tensors.size());
  // A parameter's hook runs before the Reducer's, which hangs behind the accumulation.
  if (context.trace->enabled() || context.mutant != nullptr) {
    for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
      hooks_.push_back(parameters.tensors[i].register_hook(
          [this, i](const at::Tensor& gradient) { return on_local_gradient(i, gradient); }));
    }
  }
}

TracedStep::~TracedStep() {
  for (std::size_t i = 0; i < hooks_.size(); ++i) {
    context_.task->parameters().tensors[i].remove_hook(hooks_[i]);
  }
}

at::Tensor TracedStep::on_local_gradient(std::size_t index, const at::Tensor& gradient) {
  if (!listening_) {
    return gradient;
  }
  const std::string& name = context_.task->parameters().names[index];
  const at::Tensor seen =
      context_.mutant == nullptr ? gradient : context_.mutant->local_gradient(step_, name, gradient.detach());
  if (context_.trace->enabled()) {
    local_hashes_[index] =
        context_.trace->tensor(Phase::local_gradients, name, view_of(seen.contiguous()), Sharing::own).hash;
  }
  return seen;
}

std::vector<int64_t> TracedStep::row_positions(std::size_t rows) const {
  std::vector<int64_t> positions(rows);
  for (std::size_t k = 0; k < rows; ++k) {
    positions[k] = static_cast<int64_t>(k) * context_.comm->world_size() + context_.rank;
  }
  return positions;
}

TracedStep::Outcome TracedStep::run(int64_t step, const Options& options) {
  step_ = step;
  ParameterList& parameters = context_.task->parameters();
  for (at::Tensor& parameter : parameters.tensors) {
    parameter.mutable_grad() = at::Tensor();  // PyTorch's default: reset to None, not to zero
  }
  const auto rows = static_cast<int64_t>(options.ids.size());
  const int64_t part = options.rows_a_part > 0 ? options.rows_a_part : std::max<int64_t>(rows, 1);
  context_.beat(step, "forward");
  Outcome outcome;
  std::vector<StepOutput> parts;
  for (int64_t first = 0; first < std::max<int64_t>(rows, 1); first += part) {
    reducer_->before_forward();
    parts.push_back(context_.task->forward({step, options.ids, first, std::min(rows, first + part)}));
    reducer_->before_backward({parts.back().loss});
    if (parts.size() == 1 && part >= rows) {
      outcome.loss = parts.back().loss.item<double>();
      trace_forward(options, parts, outcome);
    }
    parts.back().loss.backward();
    outcome.loss = parts.size() == 1 ? parts.back().loss.item<double>()
                                     : outcome.loss + parts.back().loss.item<double>();
  }
  if (parts.size() > 1) {
    trace_forward(options, parts, outcome);
  }
  outcome.gradient_norm_tensor = total_gradient_norm(parameters.tensors);
  outcome.gradient_norm = outcome.gradient_norm_tensor.item<double>();
  outcome.scalars = std::move(parts.front().scalars);
  trace_gradients(options, outcome);
  return outcome;
}

void TracedStep::trace_forward(const Options& options, const std::vector<StepOutput>& parts,
                               const Outcome& outcome) {
  TraceWriter& trace = *context_.trace;
  if (!trace.enabled()) {
    return;
  }
  trace.samples(options.ids);
  for (std::size_t s = 0; s < parts.front().streams.size(); ++s) {
    StreamUse use = parts.front().streams[s];
    for (std::size_t p = 1; p < parts.size(); ++p) {
      use.fingerprint += parts[p].streams[s].fingerprint;
      use.draws += parts[p].streams[s].draws;
    }
    trace.random(use.name, use.fingerprint, use.draws);
  }
  trace.scalar(Phase::control, "learning_rate", options.learning_rate, Sharing::replicated);

  std::vector<at::Tensor> energies;
  for (const StepOutput& part : parts) {
    energies.push_back(part.energies);
  }
  const at::Tensor all = parts.size() == 1 ? energies.front().contiguous() : at::cat(energies, 0);
  if (options.keep == Keep::whole || trace.level() > TraceLevel::hash) {
    // Ids of the candidates are needed where energies are kept whole; their number stands in the energies'
    // shape.
    const std::vector<int64_t>& columns = parts.front().column_ids;
    const std::vector<int64_t> shape{static_cast<int64_t>(columns.size())};
    trace.tensor(Phase::energies, "columns", {columns.data(), DType::int64, shape, {}}, Sharing::own, {},
                 options.keep);
  }
  const std::vector<int64_t> positions = row_positions(options.ids.size());
  trace.tensor(Phase::energies, "energies", view_of(all, positions), Sharing::own, options.ids, options.keep);
  trace.scalar(Phase::loss, "loss", outcome.loss, Sharing::own);
  for (const auto& [name, value] : parts.front().scalars) {
    trace.scalar(Phase::loss, name, value, Sharing::own);
  }
}

void TracedStep::trace_gradients(const Options& options, const Outcome& outcome) {
  TraceWriter& trace = *context_.trace;
  if (!trace.enabled()) {
    reducer_->after_backward({}, {});
    return;
  }
  const ParameterList& parameters = context_.task->parameters();
  reduced_hashes_.clear();
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    reduced_hashes_.push_back(trace
                                  .tensor(Phase::reduced_gradients, parameters.names[i],
                                          view_of(parameters.tensors[i].grad().contiguous()),
                                          Sharing::replicated, {}, options.keep)
                                  .hash);
  }
  reducer_->after_backward(local_hashes_, reduced_hashes_);
  trace.scalar(Phase::gradient_norm, "gradient_norm", outcome.gradient_norm, Sharing::replicated);
}

}  // namespace lockstep
