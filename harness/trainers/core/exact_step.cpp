#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

#include "harness/base/json.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/loop.h"
#include "harness/trainers/core/snapshots.h"
#include "harness/trainers/core/step.h"
#include "harness/trainers/core/task.h"
#include "harness/trainers/core/update.h"

// The step in exact arithmetic: each row by itself, sums over rows without rounding. What a rank computes of a row
// depends on the row and on the step's whole batch, and on nothing that the layout decides.

namespace lockstep {

/// As many turns as the rank with most rows of each micro-step has: a rank without a row left takes part in what its turn
/// exchanges.
std::vector<TracedStep::Pass> TracedStep::turns_of(int64_t step, const Options& options) {
  const auto own = static_cast<int64_t>(options.ids.size());
  const at::Tensor counts = context_.comm->all_gather(at::full({1}, own, at::kLong), "exact.rows");
  const int64_t all = counts.sum().item<int64_t>(), most = counts.max().item<int64_t>();
  positions_.clear();
  if (context_.positions_of) {
    positions_ = context_.positions_of(all, context_.rank);
  } else {
    for (int64_t k = 0; k < own; ++k) positions_.push_back(k * context_.comm->world_size() + context_.rank);
  }
  // A rank with more rows than it was partitioned: a fault gave them to it.
  for (int64_t k = static_cast<int64_t>(positions_.size()); k < own; ++k) positions_.push_back(all + k);
  positions_.resize(options.ids.size());
  const int64_t micro_steps = context_.config->accumulation;
  std::vector<Pass> turns;
  for (int64_t micro = 0; micro < micro_steps; ++micro) {
    const int64_t begin = micro * own / micro_steps, rows = (micro + 1) * own / micro_steps - begin;
    const int64_t turns_here = std::max<int64_t>((micro + 1) * most / micro_steps - micro * most / micro_steps, 1);
    for (int64_t turn = 0; turn < turns_here; ++turn) {
      Pass pass;
      pass.input.step = step;
      pass.input.ids.assign(options.ids.begin() + begin, options.ids.begin() + begin + rows);
      pass.input.positions.assign(positions_.begin() + begin, positions_.begin() + begin + rows);
      pass.input.step_ids = options.ids;
      pass.input.prepared = options.prepared;
      pass.input.micro_step = micro;
      pass.input.exact = true;
      pass.input.first_row = std::min(turn, rows);
      pass.input.end_row = std::min(turn + 1, rows);
      pass.first_of_micro_step = turn == 0;
      turns.push_back(std::move(pass));
    }
  }
  turns.back().last = true;
  return turns;
}

/// By parameter, as a fault may have changed them; undefined where the row has none.
std::vector<at::Tensor> TracedStep::row_gradients(const Pass& pass, const StepOutput& output) {
  ParameterList& parameters = context_.task->parameters();
  // Of a pass without a row too: a fault's hooks may exchange something.
  std::vector<at::Tensor> gradients = row_backward_->gradients(output.loss);
  if (pass.input.end_row == pass.input.first_row) return std::vector<at::Tensor>(gradients.size());
  if (context_.mutant == nullptr || !listening_) return gradients;
  const c10::NoGradGuard no_grad;
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    if (gradients[p].defined()) gradients[p] = context_.mutant->local_gradient(step_, parameters.names[p], gradients[p]);
  }
  return gradients;
}

/// Leaves in the parameters what all ranks' rows add up to, divided once.
void TracedStep::sum_over_ranks(Outcome& outcome, double divisor) {
  ParameterList& parameters = context_.task->parameters();
  Mutant* const mutant = context_.mutant;
  const double world = context_.comm->world_size();
  std::vector<at::Tensor> mean;
  if (context_.trace->enabled() || mutant != nullptr) {
    // What a rank has of the mean over ranks, as ranks of native arithmetic have it.
    std::vector<at::Tensor> local = rows_->gradients(divisor / world);
    for (std::size_t p = 0; p < local.size(); ++p) {
      if (context_.trace->enabled()) {
        context_.trace->tensor(Phase::local_gradients, parameters.names[p], view_of(local[p]), Sharing::own, {}, keep_);
      }
      if (mutant == nullptr) continue;
      const at::Tensor sent = mutant->sent_gradient(step_, parameters.names[p], local[p]);
      if (sent.data_ptr() != local[p].data_ptr()) rows_->replace(p, sent * (divisor / world));
    }
    if (world == 1 && mutant == nullptr) mean = std::move(local);  // one process's sums are those of all rows
  }
  const bool reduces = mutant == nullptr || mutant->reduces(step_);
  rows_->exchange(*context_.comm, step_, reduces);
  if (mean.empty()) mean = rows_->gradients(reduces ? divisor : divisor / world);
  for (std::size_t p = 0; p < mean.size(); ++p) parameters.tensors[p].mutable_grad() = mean[p];
  outcome.loss = rows_->loss() / divisor;
  outcome.scalars = rows_->scalar_means();
}

TracedStep::Outcome TracedStep::run_exactly(int64_t step, const Options& options) {
  step_ = step;
  keep_ = options.keep;
  ParameterList& parameters = context_.task->parameters();
  Mutant* const mutant = context_.mutant;
  std::vector<at::Tensor> before;
  for (at::Tensor& parameter : parameters.tensors) {
    before.push_back(std::exchange(parameter.mutable_grad(), at::Tensor()));
  }
  context_.heartbeat(step, "forward");
  const std::vector<Pass> turns = turns_of(step, options);
  rows_->begin_step();
  Outcome outcome;
  std::vector<StepOutput> outputs;
  for (const Pass& turn : turns) {
    context_.heartbeat(step, "forward");
    outputs.push_back(forward_of(turn));
    StepOutput& output = outputs.back();
    if (!kept_counted_) {
      outcome.kept_bytes = std::max(outcome.kept_bytes, kept_bytes(output.loss, parameters.tensors));
    }
    const std::vector<at::Tensor> gradients = row_gradients(turn, output);
    output.loss = output.loss.detach();  // lets go of the row's own graph
    output.row_losses_B = output.row_losses_B.detach();
    if (turn.input.first_row == turn.input.end_row) {
      rows_->name_scalars(output.scalars);
      continue;
    }
    const auto row = static_cast<std::size_t>(turn.input.first_row);
    rows_->add({step, turn.input.positions[row], turn.input.ids[row]}, gradients, output.loss.item<double>(),
               output.scalars);
  }
  kept_counted_ = true;
  try {
    sum_over_ranks(outcome, outputs.front().row_divisor);
  } catch (const std::runtime_error&) {
    // What was seen of the step stands in the trace of the rank that stops.
    outcome.loss = std::numeric_limits<double>::quiet_NaN();
    trace_forward(options, turns, outputs, outcome);
    throw;
  }
  trace_forward(options, turns, outputs, outcome);
  if (mutant != nullptr && !mutant->zeroes_gradients(step)) {
    for (std::size_t p = 0; p < before.size(); ++p) {
      if (before[p].defined()) parameters.tensors[p].mutable_grad().add_(before[p]);
    }
  }
  if (mutant != nullptr) mutant->reduced_gradients(step, parameters, *context_.comm);
  outcome.gradient_norm_tensor = total_gradient_norm(parameters.tensors);
  outcome.gradient_norm = outcome.gradient_norm_tensor.item<double>();
  if (context_.trace->enabled()) trace_reduced(options, outcome);
  return outcome;
}

/// Of each row its loss and the hashes of its scores and its gradient; of each parameter the sum of the rows' hashes.
void TracedStep::trace_rows(const Options& options, const std::vector<StepOutput>& outputs) {
  TraceWriter& trace = *context_.trace;
  std::vector<at::Tensor> losses{at::zeros({0}, outputs.front().loss.options())};
  std::vector<int64_t> inputs, scores;
  for (const StepOutput& output : outputs) {
    if (output.row_losses_B.numel() == 0) continue;
    losses.push_back(output.loss.reshape({1}));  // as it was differentiated
    inputs.insert(inputs.end(), output.row_inputs.begin(), output.row_inputs.end());
    uint64_t hash = 0;
    for (const StepRecord& record : output.records) {
      hash = keyed(hash, tensor_hash(view_of(record.rows.contiguous())));
    }
    scores.push_back(static_cast<int64_t>(hash));
  }
  const auto write = [&](const char* name, const std::vector<int64_t>& values, std::span<const int64_t> ids) {
    const std::vector<int64_t> shape{static_cast<int64_t>(values.size())};
    trace.tensor(Phase::loss, name, {values.data(), DType::int64, shape, {}}, Sharing::own, ids, Keep::whole);
  };
  write("row_positions", positions_, options.ids);
  write("row_inputs", inputs, options.ids);
  write("row_scores", scores, options.ids);
  trace.tensor(Phase::loss, "row_losses", view_of(at::cat(losses).contiguous()), Sharing::own, options.ids,
               Keep::whole);
  write("row_gradients", rows_->row_hashes(), options.ids);
  write("row_gradients_by_tensor", rows_->tensor_hashes(), {});
  if (trace.keeps_whole(options.keep)) {
    trace.scalar(Phase::loss, "row_weight", outputs.front().row_weight / outputs.front().row_divisor, Sharing::own);
  }
}

namespace {

/// Some of a pass's rows, one behind the other: [first, first + count).
struct SomeRows {
  int64_t first = 0, count = 0;
};

/// Of a step's rows so many that a hundred of all passes measure the size of a row's terms: all of them, if there are no more.
/// Where they begin is drawn by the step. A row that dominates the step dominates its gradient too, which stands beside the terms.
SomeRows measured_rows(int64_t step, int64_t of_pass, int64_t of_step) {
  constexpr int64_t kMost = 128;
  if (of_step <= kMost) return {0, of_pass};
  const int64_t count = std::clamp<int64_t>(of_pass * kMost / of_step, std::min<int64_t>(of_pass, 1), of_pass);
  return {static_cast<int64_t>(keyed(static_cast<uint64_t>(step), of_pass) % static_cast<uint64_t>(of_pass - count + 1)), count};
}

/// Per element how much is added up to make the gradient, by which rounding is measured: the root of (rows * the sum of squares of its
/// terms), no less than the sum over rows of |row's contribution|. Terms are what the task has marked within each row. With random
/// signs on all of them, the square of the gradient has that sum as its mean, so that a few backward passes measure it, however
/// many rows there are. From the graphs of the step itself: computed again, its collectives would stand in the ledger twice.
void trace_term_sums(const RankContext& context, int64_t step, TracedStep& traced, const std::vector<StepOutput>& passes) {
  constexpr int kDraws = 8;
  ParameterList& parameters = context.task->parameters();
  std::vector<at::Tensor> squares, gradients;  // the update still needs the gradients
  for (const at::Tensor& parameter : parameters.tensors) {
    squares.push_back(at::zeros(parameter.sizes(), at::kDouble));
    gradients.push_back(parameter.grad());
  }
  int64_t rows = 0, measured = 0;
  for (const StepOutput& pass : passes) rows += pass.row_losses_B.numel();
  std::vector<at::Tensor> losses;  // of the rows that are measured, by pass
  for (const StepOutput& pass : passes) {
    const SomeRows some = measured_rows(step, pass.row_losses_B.numel(), rows);
    losses.push_back(pass.row_losses_B.narrow(0, some.first, some.count));
    measured += some.count;
  }
  traced.listen(false);
  traced.seed_signs(step);
  for (int draw = 0; draw < kDraws; ++draw) {
    for (at::Tensor& parameter : parameters.tensors) parameter.mutable_grad() = at::Tensor();
    traced.turn_signs(true);
    for (std::size_t pass = 0; pass < passes.size(); ++pass) {
      context.heartbeat(step, "size of terms");
      ((losses[pass] * traced.signs_like(losses[pass])).sum() * passes[pass].row_weight).backward({}, /*retain_graph=*/true);
    }
    traced.turn_signs(false);
    for (std::size_t i = 0; i < squares.size(); ++i) {
      if (const at::Tensor& gradient = parameters.tensors[i].grad(); gradient.defined()) squares[i].add_(gradient.to(at::kDouble).square());
    }
  }
  traced.listen(true);
  const double all_rows = static_cast<double>(rows) * (measured > 0 ? static_cast<double>(rows) / static_cast<double>(measured) : 1.0);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    parameters.tensors[i].mutable_grad() = gradients[i];
    const at::Tensor sums = (squares[i] * (all_rows / kDraws)).sqrt().to(parameters.tensors[i].scalar_type());
    context.trace->tensor(Phase::term_sums, parameters.names[i], view_of(sums), Sharing::replicated, {}, Keep::whole);
  }
}

}  // namespace

void compute_forced(const RankContext& context, const std::string& trace_path, const std::string& choosing_path,
                    RankResult& result) {
  const RunConfig& config = *context.config;
  const ForcedConfig& forced = config.forced;
  const bool alone = context.comm->world_size() == 1;
  context.heartbeat(0, "read snapshots");
  SnapshotReader snapshots(trace_path, forced.twin);
  std::map<int64_t, std::vector<at::Tensor>> choosing;
  if (!choosing_path.empty()) choosing = read_choosing(choosing_path, forced.steps, spec_of(config).scores.record);
  TracedStep traced(context);
  Update update(context);
  for (const int64_t step : forced.steps) {
    const double began = context.now_s();
    if (context.mutant != nullptr) {
      context.mutant->before_step(step);
    }
    update.load(snapshots.at(step));
    TracedStep::Options options;
    options.keep = Keep::whole;
    options.learning_rate = update.learning_rate(step);
    options.ids = context.rows(step);
    if (!choosing.empty()) options.choosing = choosing.at(step);
    options.keep_passes = alone && context.trace->enabled();
    context.trace->begin_step(step);
    const TracedStep::Outcome outcome = traced.run(step, options);
    if (options.keep_passes) {
      trace_term_sums(context, step, traced, outcome.passes);
    }
    update.apply(step, outcome, options.learning_rate, options.keep);
    context.trace->end_step();
    result.train_seconds += context.now_s() - began;
    ++result.steps_done;
    result.curves["loss"].steps.push_back(step);
    result.curves["loss"].values.push_back(outcome.loss);
    context.heartbeat(result.steps_done, "forced");
  }
}

}  // namespace lockstep
