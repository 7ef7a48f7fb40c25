#include "harness/train/loop.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "harness/train/kept.h"
#include "harness/train/perturb.h"
#include "harness/train/step.h"
#include "harness/train/update.h"

namespace lockstep {
namespace {

/// As DistributedDataParallel does when it is made: everybody begins with rank 0's parameters.
void broadcast_parameters(const RankContext& context) {
  context.trace->begin_step(-1);
  const bool broadcast =
      context.mutant == nullptr || context.mutant->initial_parameters(context.task->parameters());
  if (broadcast && context.comm->world_size() > 1) {
    const c10::NoGradGuard no_grad;
    std::vector<at::Tensor> flat;
    for (const at::Tensor& parameter : context.task->parameters().tensors) {
      flat.push_back(parameter.detach().reshape({-1}));
    }
    at::Tensor together = at::cat(flat);
    context.comm->broadcast(together, 0, "initial parameters");
    int64_t offset = 0;
    for (at::Tensor& parameter : context.task->parameters().tensors) {
      parameter.detach().copy_(together.narrow(0, offset, parameter.numel()).view_as(parameter));
      offset += parameter.numel();
    }
  }
  trace_parameters(context, Phase::parameters, Keep::by_level);
  context.trace->end_step();
}

void evaluate(const RankContext& context, Evaluation kind, int64_t step, RankResult& result) {
  if (context.rank != 0) {
    return;
  }
  context.beat(step, "evaluate");
  for (const auto& [name, value] : context.task->evaluate(kind)) {
    context.trace->scalar(Phase::evaluation, name, value, Sharing::own);
    if (kind == Evaluation::last) {
      result.metrics[name] = value;
    }
    result.curves[name].steps.push_back(step);
    result.curves[name].values.push_back(value);
  }
}

void add_to_curves(RankResult& result, int64_t step, const TracedStep::Outcome& outcome, double rate) {
  const auto add = [&](const std::string& name, double value) {
    result.curves[name].steps.push_back(step);
    result.curves[name].values.push_back(value);
  };
  add("loss", outcome.loss);
  add("gradient_norm", outcome.gradient_norm);
  add("learning_rate", rate);
  for (const auto& [name, value] : outcome.scalars) {
    add(name, value);
  }
}

/// The process's resident memory after the first tenth of the steps and at the end; of emulated ranks, which
/// share a process, rank 0 says it.
void note_resident(const RankContext& context, int64_t done, int64_t end, RankResult& result) {
  const bool shared = context.config->ranks == RankKind::emulated && context.rank != 0;
  const bool first = done == std::max<int64_t>(1, end / 10);
  if (shared || (!first && done != end)) {
    return;
  }
  const auto bytes = static_cast<double>(resident_bytes());
  if (first) {
    result.resident_first_bytes = bytes;
  }
  if (done == end) {
    result.resident_last_bytes = bytes;
  }
}

}  // namespace

void train(const RankContext& context, RankResult& result) {
  const RunConfig& config = *context.config;
  const int64_t end = config.stop_after > 0 ? std::min(config.stop_after, config.steps) : config.steps;
  if (config.perturb == Perturbation::epsilon) {
    move_by_one_unit(context.task->parameters(), config.seed);
  }
  broadcast_parameters(context);
  TracedStep traced(context);
  Update update(context);
  for (int64_t step = 0; step < end; ++step) {
    const double began = context.now_s();
    if (context.mutant != nullptr) {
      context.mutant->before_step(step);
    }
    context.trace->begin_step(step);
    if (std::find(config.snapshot_steps.begin(), config.snapshot_steps.end(), step) !=
        config.snapshot_steps.end()) {
      update.snapshot();
    }
    TracedStep::Options options;
    options.ids = context.rows(step);
    options.learning_rate = update.learning_rate(step);
    const TracedStep::Outcome outcome = traced.run(step, options);
    update.apply(step, outcome, options.learning_rate, static_cast<int64_t>(options.ids.size()),
                 Keep::by_level);
    result.train_seconds += context.now_s() - began;
    result.steps_done = step + 1;
    result.activation_bytes = std::max(result.activation_bytes, static_cast<double>(outcome.kept_bytes));
    note_resident(context, step + 1, end, result);
    add_to_curves(result, step, outcome, options.learning_rate);
    if (step + 1 == end) {
      evaluate(context, Evaluation::last, step + 1, result);
    } else if (config.eval_every > 0 && (step + 1) % config.eval_every == 0) {
      evaluate(context, Evaluation::curve, step + 1, result);
    }
    context.trace->end_step();
    context.beat(step + 1, "train");
  }
}

}  // namespace lockstep
