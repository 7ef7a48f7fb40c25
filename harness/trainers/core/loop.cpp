#include "harness/trainers/core/loop.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "harness/base/json.h"
#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/record.h"
#include "harness/lib/data/sharding/control_guard.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/checkpoints.h"
#include "harness/trainers/core/snapshots.h"
#include "harness/trainers/core/step.h"
#include "harness/trainers/core/task.h"
#include "harness/trainers/core/update.h"

namespace lockstep {

Prefetcher::Prefetcher(const Options& options, std::function<PartitionedRows(int64_t step)> partition)
    : options_(options), partition_(std::move(partition)), thread_([this] { work(); }) {}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetcher::work() {
  try {
    at::set_num_threads(1);  // of this thread: the rank's own setting does not reach it
    const c10::NoGradGuard no_grad;
    for (int64_t step = 0; step < options_.end; ++step) {
      PartitionedRows rows = partition_(step);
      std::unique_lock lock(mutex_);
      ready_.push_back(std::move(rows));
      changed_.notify_all();
      changed_.wait(lock, [this] { return stop_ || static_cast<int64_t>(ready_.size()) < options_.ahead; });
      if (stop_) {
        return;
      }
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

PartitionedRows Prefetcher::next() {
  std::unique_lock lock(mutex_);
  const int64_t step = given_++;
  if (step >= options_.end) {
    throw std::runtime_error(c10::str("rows of step ", step, " were asked for; the run has ", options_.end));
  }
  const bool in_time = changed_.wait_for(lock, std::chrono::duration<double>(options_.timeout_s),
                                         [this] { return !ready_.empty() || error_ != nullptr; });
  if (!in_time) {
    throw std::runtime_error(
        c10::str("the rows of step ", step, " were not ready within ", options_.timeout_s, " s"));
  }
  if (ready_.empty()) {
    std::rethrow_exception(error_);
  }
  PartitionedRows rows = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return rows;
}

namespace {

constexpr const char* kGuardTag = "control.guard";

/// The training's own collectives, which end within the run's timeout or throw.
class CommGroup final : public checkpoint::Group {
 public:
  explicit CommGroup(Comm& comm) : comm_(comm) {}
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.world_size(); }

  checkpoint::Gathered all_gather(const std::string& /*label*/, const std::string& mine, double /*deadline_s*/) override {
    checkpoint::Gathered gathered;
    try {
      const at::Tensor lengths = comm_.all_gather(at::full({1}, static_cast<int64_t>(mine.size()), at::kLong), kGuardTag);
      const auto longest = lengths.max().item<int64_t>();
      const at::Tensor own = at::zeros({std::max<int64_t>(longest, 1)}, at::kByte);
      std::memcpy(own.mutable_data_ptr(), mine.data(), mine.size());
      const at::Tensor all = comm_.all_gather(own, kGuardTag);
      for (int r = 0; r < size(); ++r) {
        const at::Tensor text = all.select(0, r);
        gathered.texts.emplace_back(static_cast<const char*>(text.const_data_ptr()),
                                    static_cast<std::size_t>(lengths.select(0, r).item<int64_t>()));
      }
    } catch (const std::runtime_error& error) {
      return {{}, error.what()};
    }
    return gathered;
  }

 private:
  Comm& comm_;
};

/// Fingerprints of all parameters, folded in their order.
uint64_t parameters_hash(const ParameterList& parameters) {
  uint64_t hash = 0;
  for (const at::Tensor& parameter : parameters.tensors) {
    hash = keyed(hash, tensor_hash(view_of(parameter)));
  }
  return hash;
}

/// Collective: two gathers of few bytes ("control.guard"), one more pair where ranks differ. Compares the step, the counters, the
/// rate, whether the rank goes on, the trainer's own control values, and a hash of the parameters. Throws
/// std::runtime_error, on every rank with the same words: the first value that differs, and who has not what most have.
void check_controls(const RankContext& context, int64_t step, const StepCounters& counters, double learning_rate,
                    bool stop) {
  if (context.comm->world_size() == 1) return;
  context.heartbeat(step, "compare controls");
  sharding::Controls controls;
  controls.add("stop", stop);
  controls.add("sampler_step", counters.samples);
  controls.add("rate_step", counters.rate);
  controls.add("learning_rate", learning_rate);
  controls.add("random_offset", counters.draws);
  context.task->add_controls(step, controls);
  controls.add_hash("parameters", parameters_hash(context.task->parameters()));
  CommGroup group(*context.comm);
  const sharding::ControlVerdict verdict =
      sharding::ControlGuard(group, context.config->timeout_s).check(step, controls);
  if (!verdict) throw std::runtime_error(verdict.sentence);
}

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
  const std::optional<Shards> shards = shards_of(*context.config, context.task->parameters(), *context.comm);
  trace_parameters(context, Phase::parameters, Keep::by_level, shards ? &*shards : nullptr);
  context.trace->end_step();
}

void evaluate(const RankContext& context, Evaluation kind, int64_t step, RankResult& result) {
  if (context.rank != 0) {
    return;
  }
  const auto heartbeat = [&] { context.heartbeat(step, "evaluate"); };
  heartbeat();
  for (const auto& [name, value] : context.task->evaluate(kind, heartbeat)) {
    context.trace->scalar(Phase::evaluation, name, value, Sharing::own);
    if (kind == Evaluation::last) {
      result.metrics[name] = value;
    }
    result.curves[name].steps.push_back(step);
    result.curves[name].values.push_back(value);
  }
}

/// A thread that partitions the coming steps' rows, or none.
std::unique_ptr<Prefetcher> make_prefetcher(const RankContext& context, int64_t begin, int64_t end) {
  const RunConfig& config = *context.config;
  if (config.data.prefetch <= 0) {
    return nullptr;
  }
  const auto partition = [&context, begin](int64_t place) {
    const int64_t step = begin + place;
    PartitionedRows rows;
    rows.ids = context.rows_ahead(step, context.rank);
    rows.prepared = context.task->prepare_rows(rows.ids);
    return rows;
  };
  return std::make_unique<Prefetcher>(Prefetcher::Options{config.data.prefetch, end - begin, config.timeout_s}, partition);
}

std::string digits_of(uint64_t hash) {
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

/// The newest value of the metric that the trainer is watched by: of the steps, where they measure it, or of the last evaluation.
void show_progress(const RankContext& context, const RankResult& result) {
  if (!context.show) return;
  const std::string metric(spec_of(*context.config).shown_metric);
  for (const std::string& name : {"train_" + metric, metric}) {
    const auto curve = result.curves.find(name);
    if (curve == result.curves.end() || curve->second.values.empty()) continue;
    context.show(curve->second.values.back());
    return;
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

/// Forward, backward and reduction of the step before the one that the run goes on with, of which nothing stays: the
/// reducer gives its buckets their final shape after its first pass, and the run that was never stopped has long had it.
void shape_buckets(const RankContext& context, TracedStep& traced, int64_t begin, RankResult& result) {
  if (context.config->arithmetic == Arithmetic::exact || context.comm->world_size() == 1) return;
  context.trace->pause();
  TracedStep::Options options;
  options.ids = context.rows(begin - 1);
  const TracedStep::Outcome outcome = traced.run(begin - 1, options);
  context.task->update_buffers();
  result.activation_bytes = static_cast<double>(outcome.kept_bytes);
  context.trace->go_on();
}

/// The step before which the run stands: its newest checkpoint's, or the beginning.
int64_t go_on(const RankContext& context, TracedStep& traced, Checkpoints& checkpoints, RankResult& result) {
  const int64_t begin = checkpoints.find();
  if (begin > 0) {
    shape_buckets(context, traced, begin, result);
    checkpoints.restore();
  }
  checkpoints.take_over_trace(begin);
  result.steps_done = begin;
  return begin;
}

}  // namespace

int train(const RankContext& context, RankResult& result, const std::string& resume_trace,
          const CheckpointSetup* setup) {
  const RunConfig& config = *context.config;
  const int64_t end = config.stop_after > 0 ? std::min(config.stop_after, config.steps) : config.steps;
  if (config.perturb == Perturbation::epsilon) {
    move_by_one_unit(context.task->parameters(), config.seed);
  }
  broadcast_parameters(context);
  TracedStep traced(context);
  Update update(context);
  StepMeter meter(context.meter);
  const auto checkpoints =
      setup == nullptr ? nullptr : std::make_unique<Checkpoints>(context, *setup, update, result);
  int64_t begin = resume_trace.empty() ? 0 : config.resume_step;
  if (checkpoints != nullptr) {
    begin = go_on(context, traced, *checkpoints, result);
    if (checkpoints->stops_at_begin()) return 128 + result.checkpoints.stop_signal;
  }
  if (!resume_trace.empty()) update.load(SnapshotReader(resume_trace).at(begin));
  // A run that was never stopped counts rows, draws and the rate's steps as one number.
  const auto counters = [&](int64_t step) {
    if (checkpoints != nullptr) return checkpoints->counters();
    return StepCounters{step, step, step};
  };
  const int64_t first_rows = counters(begin).samples;
  const std::unique_ptr<Prefetcher> prefetcher = make_prefetcher(context, first_rows, first_rows + end - begin);
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
      PartitionedRows partitioned = prefetcher->next();
      options.ids = context.rows(step, std::move(partitioned.ids));
      options.prepared = std::move(partitioned.prepared);
    } else {
      options.ids = context.rows(counters(step).samples);
    }
    options.learning_rate = update.learning_rate(counters(step).rate);
    if (config.control_guard) check_controls(context, step, counters(step), options.learning_rate, false);
    const TracedStep::Outcome outcome = traced.run(counters(step).draws, options);
    update.apply(step, outcome, options.learning_rate, Keep::by_level);
    meter.end(context.now_s(), result);
    result.steps_done = step + 1;
    result.activation_bytes = std::max(result.activation_bytes, static_cast<double>(outcome.kept_bytes));
    note_resident(context, step + 1, end, result);
    add_to_curves(result, step, outcome, options.learning_rate);
    const bool evaluates = config.eval_every.due(step + 1, end);
    if (evaluates) {
      evaluate(context, step + 1 == end ? Evaluation::last : Evaluation::curve, step + 1, result);
    }
    context.trace->end_step();
    show_progress(context, result);
    context.heartbeat(step + 1, "train");
    // Who has trained to the end has finished, whatever signal came.
    if (checkpoints != nullptr && checkpoints->after_step(step + 1, evaluates, step + 1 == end)) {
      return 128 + result.checkpoints.stop_signal;
    }
  }
  if (config.control_guard) {
    context.trace->pause();  // there is no such step
    check_controls(context, end, counters(end), update.learning_rate(counters(end).rate), true);
    context.trace->go_on();
  }
  if (checkpoints != nullptr) checkpoints->finish();
  meter.fill(result);
  result.parameters_hash = digits_of(parameters_hash(context.task->parameters()));
  for (const at::Tensor& parameter : context.task->parameters().tensors) {
    result.weight_bytes += static_cast<double>(parameter.nbytes());
  }
  return 0;
}

std::map<int64_t, std::vector<at::Tensor>> read_choosing(const std::string& trace_path, const std::vector<int64_t>& steps,
                                                         std::string_view scores) {
  std::map<int64_t, std::vector<at::Tensor>> found;
  TraceReader reader(trace_path);
  const std::string of_later_micro_steps = std::string(scores) + ".";
  while (std::optional<StepRecords> step = reader.next()) {
    if (std::ranges::find(steps, step->step) == steps.end()) continue;
    for (const Record& record : step->records) {
      if (record.name != scores && !record.name.starts_with(of_later_micro_steps)) continue;
      if (const auto values = values_of(record); values && record.shape.size() == 2) {
        found[step->step].push_back(at::tensor(at::ArrayRef<double>(*values), at::kDouble).reshape(record.shape));
      }
    }
  }
  for (const int64_t step : steps) {
    if (!found.contains(step)) {
      throw std::runtime_error(trace_path + " holds no " + std::string(scores) + " of step " + std::to_string(step) + ": " +
                               reader.end());
    }
  }
  return found;
}

}  // namespace lockstep
