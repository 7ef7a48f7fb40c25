#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "harness/base/hashing.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/loop.h"
#include "harness/trainers/core/snapshots.h"
#include "harness/trainers/core/step.h"
#include "harness/trainers/core/update.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {

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
