#include "harness/train/loop.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "harness/base/hashing.h"
#include "harness/comm/tensor_view.h"
#include "harness/train/kept.h"
#include "harness/train/perturb.h"
#include "harness/train/prefetch.h"
#include "harness/train/step.h"
#include "harness/train/step_meter.h"
#include "harness/train/update.h"

namespace lockstep {
namespace {

/// As DistributedDataParallel does when it is made: every rank begins with rank 0's parameters.
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

/// A thread that deals the coming steps' rows, or none.
std::unique_ptr<Prefetcher> make_prefetcher(const RankContext& context, int64_t begin, int64_t end) {
  const RunConfig& config = *context.config;
  if (config.data.prefetch <= 0) {
    return nullptr;
  }
  const auto deal = [&context, begin](int64_t place) {
    const int64_t step = begin + place;
    DealtRows rows;
    rows.ids = context.rows_ahead(step, context.rank);
    rows.prepared = context.task->prepare_rows(rows.ids);
    return rows;
  };
  return std::make_unique<Prefetcher>(Prefetcher::Options{config.data.prefetch, end - begin, config.timeout_s}, deal);
}

/// Fingerprints of all parameters, folded in their order.
std::string hash_of(const ParameterList& parameters) {
  uint64_t hash = 0;
  for (const at::Tensor& parameter : parameters.tensors) {
    hash = keyed(hash, tensor_stats(view_of(parameter)).hash);
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
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
  const bool shared = context.config->backend == Backend::emulated && context.rank != 0;
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

void train(const RankContext& context, RankResult& result, const std::string& resume_trace) {
  const RunConfig& config = *context.config;
  const int64_t end = config.stop_after > 0 ? std::min(config.stop_after, config.steps) : config.steps;
  if (config.perturb == Perturbation::epsilon) {
    move_by_one_unit(context.task->parameters(), config.seed);
  }
  broadcast_parameters(context);
  TracedStep traced(context);
  Update update(context);
  StepMeter meter(context.meter);
  const int64_t begin = resume_trace.empty() ? 0 : config.resume_step;
  if (!resume_trace.empty()) update.load(read_snapshots(resume_trace, {begin}).at(begin));
  const std::unique_ptr<Prefetcher> prefetcher = make_prefetcher(context, begin, end);
  for (int64_t step = begin; step < end; ++step) {
    meter.begin(context.now_s());
    if (context.mutant != nullptr) {
      context.mutant->before_step(step);
    }
    context.trace->begin_step(step);
    if (std::find(config.snapshot_steps.begin(), config.snapshot_steps.end(), step) !=
        config.snapshot_steps.end()) {
      update.snapshot();
    }
    TracedStep::Options options;
    if (prefetcher != nullptr) {
      DealtRows dealt = prefetcher->next();
      options.ids = context.rows(step, std::move(dealt.ids));
      options.prepared = std::move(dealt.prepared);
    } else {
      options.ids = context.rows(step);
    }
    options.learning_rate = update.learning_rate(step);
    const TracedStep::Outcome outcome = traced.run(step, options);
    update.apply(step, outcome, options.learning_rate, Keep::by_level);
    meter.end(context.now_s(), result);
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
  meter.fill(result);
  result.parameters_hash = hash_of(context.task->parameters());
  for (const at::Tensor& parameter : context.task->parameters().tensors) {
    result.weight_bytes += static_cast<double>(parameter.nbytes());
  }
}

}  // namespace lockstep
