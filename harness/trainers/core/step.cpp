#include "harness/trainers/core/step.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/snapshots.h"
#include "harness/trainers/core/task.h"

namespace lockstep {
namespace {

/// Each stream's use by all passes of a step.
std::vector<StreamUse> added_up(const std::vector<StepOutput>& outputs) {
  std::vector<StreamUse> sums;
  for (const StepOutput& output : outputs) {
    for (const StreamUse& use : output.streams) {
      const auto same = [&](const StreamUse& sum) { return sum.name == use.name; };
      if (const auto sum = std::find_if(sums.begin(), sums.end(), same); sum != sums.end()) {
        sum->fingerprint += use.fingerprint;
        sum->draws += use.draws;
      } else {
        sums.push_back(use);
      }
    }
  }
  return sums;
}

}  // namespace

TracedStep::TracedStep(const RankContext& context) : context_(context) {
  ParameterList& parameters = context.task->parameters();
  if (context.config->arithmetic == Arithmetic::exact) {
    rows_ = std::make_unique<ExactRows>(parameters);
    row_backward_ = std::make_unique<RowBackward>(parameters.tensors);
    rows_->hash_rows(context.trace->enabled());
    return;
  }
  shards_ = shards_of(*context.config, parameters, *context.comm);
  const ReducerOptions options{context.config->bucket_cap_bytes, context.config->gradient_as_bucket_view,
                               context.config->find_unused_parameters, shards_.has_value()};
  reducer_ = context.comm->reduce_gradients(parameters.tensors, parameters.names, options);
  local_hashes_.resize(parameters.tensors.size());
  // A parameter's hook runs before the Reducer's, which hangs behind the accumulation.
  if (context.trace->enabled() || context.mutant != nullptr || guarded()) {
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
  if (guarded()) guard_.look(index, seen.detach());
  if (!context_.trace->enabled() && context_.mutant == nullptr) {
    return seen;
  }
  if (!micro_part_.empty()) add_to_part(micro_part_, index, seen.detach());
  at::Tensor& accumulated = accumulated_[index];
  const at::Tensor before = accumulated;
  const at::Tensor whole = before.defined() ? before + seen.detach() : seen;
  accumulated = last_pass_ ? at::Tensor() : whole.detach().clone();
  if (!last_pass_) {
    return seen;
  }
  if (context_.trace->enabled()) {
    trace_parts(index, whole);
    local_hashes_[index] =
        context_.trace
            ->tensor(Phase::local_gradients, name, view_of(whole.contiguous()), Sharing::own, {}, keep_)
            .hash;
  }
  if (context_.mutant != nullptr) {
    const at::Tensor sent = context_.mutant->sent_gradient(step_, name, whole.detach());
    if (sent.data_ptr() != whole.data_ptr()) {
      return before.defined() ? sent - before : sent;
    }
  }
  return seen;
}

void TracedStep::add_to_part(const std::string& name, std::size_t index, const at::Tensor& gradient) {
  auto part = std::ranges::find(parts_, name, &GradientPart::name);
  if (part == parts_.end()) {
    parts_.push_back({name, std::vector<at::Tensor>(context_.task->parameters().tensors.size())});
    part = parts_.end() - 1;
  }
  at::Tensor& sum = part->gradients[index];
  sum = sum.defined() ? sum + gradient : gradient.clone();
}

/// What each named loss adds, from the graph of the pass, before its own backward.
void TracedStep::take_terms(const StepOutput& output) {
  Mutant* const mutant = context_.mutant;
  const bool asked = mutant != nullptr && mutant->takes_terms(step_);
  if (output.terms.size() < 2 || !(asked || keeps_numbers())) return;
  const ParameterList& parameters = context_.task->parameters();
  listening_ = false;
  for (const LossTerm& term : output.terms) {
    if (!term.loss.requires_grad()) continue;
    const std::vector<at::Tensor> gradients = torch::autograd::grad(
        {term.loss * term.weight}, parameters.tensors, {}, /*retain_graph=*/true, false, /*allow_unused=*/true);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      if (keeps_numbers()) add_to_part("loss " + term.name, i, gradients[i]);
      if (asked) mutant->term_gradient(step_, term.name, parameters.names[i], gradients[i]);
    }
  }
  listening_ = true;
}

void TracedStep::trace_parts(std::size_t index, const at::Tensor& local) {
  const at::Tensor whole = local.contiguous();
  for (const GradientPart& part : parts_) {
    if (!part.gradients[index].defined()) continue;
    const at::Tensor gradient = part.gradients[index].contiguous();
    TensorView view = view_of(gradient);
    view.dot_with = whole.const_data_ptr();
    context_.trace->tensor(Phase::gradient_parts, part.name + "/" + context_.task->parameters().names[index], view, Sharing::own, {},
                           keep_);
  }
}

std::vector<int64_t> TracedStep::row_positions(std::size_t first, std::size_t rows) const {
  if (exact()) {
    const auto begin = positions_.begin() + static_cast<std::ptrdiff_t>(first);
    return {begin, begin + static_cast<std::ptrdiff_t>(rows)};
  }
  std::vector<int64_t> positions(rows);
  const int64_t block = context_.config->data.block;
  for (std::size_t k = 0; k < rows; ++k) {
    const auto row = static_cast<int64_t>(first + k);
    positions[k] = (row / block * context_.comm->world_size() + context_.rank) * block + row % block;
  }
  return positions;
}

void TracedStep::seed_signs(int64_t step) {
  generator_ = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step) + 1);
}

at::Tensor TracedStep::signs_like(const at::Tensor& tensor) {
  const at::Tensor either = at::randint(0, 2, tensor.sizes(), generator_, at::kFloat);
  return (either * 2 - 1).to(tensor.scalar_type());
}

/// An alias, so that what else goes through these values keeps its signs.
at::Tensor TracedStep::as_terms(const at::Tensor& values) {
  if (!values.requires_grad()) return values;
  const at::Tensor terms = values.alias();
  terms.register_hook([this](const at::Tensor& gradient) { return turns_signs_ ? gradient * signs_like(gradient) : gradient; });
  return terms;
}

std::vector<TracedStep::Pass> TracedStep::passes_of(int64_t step, const Options& options) {
  const auto all = static_cast<int64_t>(options.ids.size());
  // A reference that stands for several ranks knows each of their micro-steps' rows itself.
  const int64_t micro_steps = context_.config->oracle_world > 0 ? 1 : context_.config->accumulation;
  const int64_t rows_a_part = context_.task->takes_parts() ? context_.task->rows_at_once() : 0;
  std::vector<Pass> passes;
  for (int64_t micro = 0; micro < micro_steps; ++micro) {
    const int64_t begin = micro * all / micro_steps;
    const int64_t rows = (micro + 1) * all / micro_steps - begin;
    const int64_t part = rows_a_part > 0 ? rows_a_part : std::max<int64_t>(rows, 1);
    for (int64_t first = 0; first < std::max<int64_t>(rows, 1); first += part) {
      Pass pass;
      pass.input.step = step;
      pass.input.ids.assign(options.ids.begin() + begin, options.ids.begin() + begin + rows);
      pass.input.step_ids = options.ids;
      pass.input.prepared = options.prepared;
      pass.input.micro_step = micro;
      pass.input.describes_rows = keeps_numbers() && context_.config->oracle_world == 0;
      if (!options.choosing.empty()) pass.input.choosing_BN = options.choosing.at(static_cast<std::size_t>(micro));
      if (options.keep_passes) pass.input.as_terms = [this](const at::Tensor& values) { return as_terms(values); };
      pass.input.first_row = first;
      pass.input.end_row = std::min(rows, first + part);
      pass.first_of_micro_step = first == 0;
      passes.push_back(std::move(pass));
    }
  }
  passes.back().last = true;
  return passes;
}

/// Forward and backward. Only the last pass of a step is reduced, as under DistributedDataParallel's no_sync.
StepOutput TracedStep::run_pass(const Pass& pass) {
  const bool reduce = pass.last && (context_.mutant == nullptr || context_.mutant->reduces(step_));
  begin_pass(pass);
  if (reduce) {
    reducer_->before_forward();
  }
  StepOutput output = forward_of(pass);
  take_terms(output);
  if (reduce) {
    reducer_->before_backward({output.loss});
  }
  return output;
}

void TracedStep::begin_pass(const Pass& pass) {
  last_pass_ = pass.last;
  const bool several = context_.config->accumulation > 1 && context_.config->oracle_world == 0;
  micro_part_ = several && keeps_numbers() ? "micro " + std::to_string(pass.input.micro_step) : "";
  const bool next_micro_step = pass.first_of_micro_step && pass.input.micro_step > 0;
  if (!next_micro_step || context_.mutant == nullptr || context_.mutant->keeps_micro_steps(step_)) return;
  forget_gradients();
  accumulated_.assign(accumulated_.size(), at::Tensor());
}

void TracedStep::forget_gradients() {
  for (at::Tensor& parameter : context_.task->parameters().tensors) {
    parameter.mutable_grad() = at::Tensor();  // PyTorch's default: reset to None, not to zero
  }
}

StepOutput TracedStep::forward_of(const Pass& pass) {
  StepOutput output = context_.task->forward(pass.input);
  if (const double factor = context_.mutant == nullptr ? 1 : context_.mutant->loss_factor(step_);
      factor != 1) {
    output.loss = output.loss * factor;
    for (LossTerm& term : output.terms) term.loss = term.loss * factor;
  }
  return output;
}

TracedStep::Outcome TracedStep::run(int64_t step, const Options& options) {
  if (exact()) return run_exactly(step, options);
  step_ = step;
  keep_ = options.keep;
  ParameterList& parameters = context_.task->parameters();
  if (context_.mutant == nullptr || context_.mutant->zeroes_gradients(step)) forget_gradients();
  guard_.begin();
  parts_.clear();
  accumulated_.assign(parameters.tensors.size(), at::Tensor());
  const std::vector<Pass> passes = passes_of(step, options);
  Outcome outcome;
  std::vector<StepOutput> outputs;
  for (const Pass& pass : passes) {
    context_.heartbeat(step, "forward");
    outputs.push_back(run_pass(pass));
    if (!kept_counted_) {
      // Every step has the first one's shapes.
      outcome.kept_bytes = std::max(outcome.kept_bytes, kept_bytes(outputs.back().loss, parameters.tensors));
    }
    const double loss = outputs.back().loss.item<double>();
    outcome.loss = passes.size() == 1 ? loss : outcome.loss + loss;
    if (pass.last) {
      // Written before the last backward pass, whose records follow.
      trace_forward(options, passes, outputs, outcome);
    }
    outputs.back().loss.backward({}, options.keep_passes);
  }
  kept_counted_ = true;
  require_finite(step, outcome);
  reduce_to_shards();
  if (context_.mutant != nullptr) {
    context_.mutant->reduced_gradients(step, parameters, *context_.comm);
  }
  measure_norm(outcome);
  outcome.scalars = outputs.front().scalars;
  if (options.keep_passes) {
    outcome.passes = std::move(outputs);
  }
  trace_gradients(options, outcome);
  return outcome;
}

/// What other ranks own is dropped: the second half of a reduce_scatter.
void TracedStep::reduce_to_shards() {
  if (!shards_) return;
  const ParameterList& parameters = context_.task->parameters();
  for (std::size_t i = 0; i < shards_->size(); ++i) shards_->drop_others(i, parameters.tensors[i].grad());
}

void TracedStep::measure_norm(Outcome& outcome) {
  const std::vector<at::Tensor>& parameters = context_.task->parameters().tensors;
  if (!shards_) {
    outcome.gradient_norm_tensor = total_gradient_norm(parameters);
    outcome.gradient_norm = outcome.gradient_norm_tensor.item<double>();
    return;
  }
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i < parameters.size(); ++i) parts.push_back(shards_->own(i, parameters[i].grad()));
  const SquaredNorms squares = shards_->squared_norms(*context_.comm, parts);
  double norm = std::sqrt(squares.all_shards + squares.replicated);
  if (context_.mutant != nullptr) norm = context_.mutant->norm_of_shards(step_, squares, norm);
  outcome.gradient_norm_tensor = at::full({}, norm, parts.front().options());
  outcome.gradient_norm = outcome.gradient_norm_tensor.item<double>();
}

/// All ranks know of the same number, and either all throw or none updates.
void TracedStep::require_finite(int64_t step, Outcome& outcome) {
  if (!guarded()) return;
  outcome.not_finite = guard_.agree(*context_.comm);
  if (!outcome.not_finite) return;
  const std::string words = in_words(*outcome.not_finite, context_.task->parameters().names, step);
  if (context_.config->watch.nan_guard == NanGuard::stop) throw std::runtime_error("nan_guard: " + words);
  std::fprintf(stderr, "nan_guard: no rank takes the update: %s\n", words.c_str());
}

void TracedStep::trace_forward(const Options& options, const std::vector<Pass>& passes,
                               const std::vector<StepOutput>& outputs, const Outcome& outcome) {
  TraceWriter& trace = *context_.trace;
  if (!trace.enabled()) {
    return;
  }
  trace.samples(options.ids);
  if (!exact()) trace_inputs(options, outputs);
  for (const StreamUse& use : added_up(outputs)) {
    trace.random(use.name, use.fingerprint, use.draws);
  }
  trace.scalar(Phase::control, "learning_rate", options.learning_rate, Sharing::replicated);
  for (const auto& [name, value] : outputs.front().controls) {
    trace.scalar(Phase::control, name, value, Sharing::replicated);
  }
  trace_schedules(outputs.front());
  trace_records(options, passes, outputs);
  const Sharing sharing = exact() ? Sharing::replicated : Sharing::own;
  trace.scalar(Phase::loss, "loss", outcome.loss, sharing);
  for (const auto& [name, value] : exact() ? outcome.scalars : outputs.front().scalars) {
    trace.scalar(Phase::loss, name, value, sharing);
  }
  if (exact()) {
    trace_rows(options, outputs);
    return;
  }
  trace_terms(outputs);
  if (options.keep == Keep::whole) trace_row_losses(options, outputs);
  if (keeps_numbers()) trace_micro_steps(options, passes, outputs);
}

/// What the loss is recomputed from when it is asked which mistake gives the recorded value.
void TracedStep::trace_row_losses(const Options& options, const std::vector<StepOutput>& outputs) {
  context_.trace->scalar(Phase::loss, "row_weight", outputs.front().row_weight, Sharing::own);
  std::vector<at::Tensor> rows;
  for (const StepOutput& output : outputs) {
    rows.push_back(output.row_losses_B.detach());
  }
  context_.trace->tensor(Phase::loss, "row_losses", view_of(at::cat(rows).contiguous()), Sharing::own, options.ids, options.keep);
}

void TracedStep::trace_int64(Phase phase, const char* name, const std::vector<int64_t>& values, std::span<const int64_t> ids) {
  const std::vector<int64_t> shape{static_cast<int64_t>(values.size())};
  context_.trace->tensor(phase, name, {values.data(), DType::int64, shape, {}}, Sharing::own, ids, keep_);
}

/// Of each row a hash of what it is made from, and its label, if the trainer tells them.
void TracedStep::trace_inputs(const Options& options, const std::vector<StepOutput>& outputs) {
  std::vector<int64_t> inputs, labels;
  for (const StepOutput& output : outputs) {
    inputs.insert(inputs.end(), output.row_inputs.begin(), output.row_inputs.end());
    labels.insert(labels.end(), output.rows.labels.begin(), output.rows.labels.end());
  }
  if (inputs.size() == options.ids.size() && !inputs.empty()) trace_int64(Phase::inputs, "inputs", inputs, options.ids);
  if (labels.size() == options.ids.size() && !labels.empty()) trace_int64(Phase::inputs, "labels", labels, options.ids);
}

/// Whole at any level: they are few numbers, by which a trainer is steered.
void TracedStep::trace_schedules(const StepOutput& output) {
  for (const auto& [name, points] : output.schedules) {
    const std::vector<int64_t> shape{static_cast<int64_t>(points.size())};
    context_.trace->tensor(Phase::control, "schedule/" + name, {points.data(), DType::float64, shape, {}}, Sharing::replicated, {}, Keep::whole);
  }
}

/// The named parts of this rank's loss of the step, and their weights.
void TracedStep::trace_terms(const std::vector<StepOutput>& outputs) {
  const std::vector<LossTerm>& named = outputs.front().terms;
  for (std::size_t i = 0; i < named.size(); ++i) {
    double sum = 0;
    for (const StepOutput& output : outputs) sum += output.terms[i].loss.item<double>();
    context_.trace->scalar(Phase::loss, "loss/" + named[i].name, sum, Sharing::own);
    context_.trace->scalar(Phase::loss, "weight/" + named[i].name, named[i].weight, Sharing::own);
  }
}

/// Of each micro-step its loss as a mean of its own, what that divides by, and its rows; what each row counts.
void TracedStep::trace_micro_steps(const Options& options, const std::vector<Pass>& passes, const std::vector<StepOutput>& outputs) {
  std::vector<int64_t> row_counts, row_widths, counts, rows;
  std::vector<double> losses;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const RowDescriptions& told = outputs[i].rows;
    row_counts.insert(row_counts.end(), told.counts.begin(), told.counts.end());
    row_widths.insert(row_widths.end(), told.widths.begin(), told.widths.end());
    if (passes[i].first_of_micro_step) {
      losses.push_back(0);
      counts.push_back(0);
      rows.push_back(static_cast<int64_t>(passes[i].input.ids.size()));
    }
    losses.back() += outputs[i].row_losses_B.sum().item<double>();
    counts.back() += static_cast<int64_t>(outputs[i].counted);
  }
  if (row_counts.size() != options.ids.size() || row_counts.empty()) return;
  for (std::size_t k = 0; k < losses.size(); ++k) losses[k] = counts[k] > 0 ? losses[k] / static_cast<double>(counts[k]) : 0.0;
  trace_int64(Phase::loss, "row_counts", row_counts, options.ids);
  trace_int64(Phase::loss, "row_widths", row_widths, options.ids);
  const std::vector<int64_t> shape{static_cast<int64_t>(losses.size())};
  context_.trace->tensor(Phase::loss, "micro_losses", {losses.data(), DType::float64, shape, {}}, Sharing::own, {}, keep_);
  trace_int64(Phase::loss, "micro_counts", counts, {});
  trace_int64(Phase::loss, "micro_rows", rows, {});
}

/// The task's records of each micro-step. The first one's names are plain, the next ones' end in their number.
void TracedStep::trace_records(const Options& options, const std::vector<Pass>& passes,
                               const std::vector<StepOutput>& outputs) {
  std::size_t first_row = 0;
  for (std::size_t first = 0, end = 0; first < passes.size(); first = end) {
    const StepInput& input = passes[first].input;
    for (end = first + 1; end < passes.size() && !passes[end].first_of_micro_step;) ++end;
    const std::span<const StepOutput> parts(outputs.data() + first, end - first);
    const std::string suffix = input.micro_step == 0 ? "" : std::string(".") += std::to_string(input.micro_step);
    for (std::size_t which = 0; which < parts.front().records.size(); ++which) {
      trace_record(options, parts, which, suffix, {input.ids, row_positions(first_row, input.ids.size())});
    }
    first_row += input.ids.size();
  }
}

/// One record of a micro-step, whose rows may have been computed in several parts.
void TracedStep::trace_record(const Options& options, std::span<const StepOutput> parts, std::size_t which,
                              const std::string& suffix, const PartitionedIds& partitioned) {
  TraceWriter& trace = *context_.trace;
  const StepRecord& record = parts.front().records[which];
  std::vector<at::Tensor> rows;
  for (const StepOutput& part : parts) rows.push_back(part.records[which].rows);
  const at::Tensor all = rows.size() == 1 ? rows.front().contiguous() : at::cat(rows, 0);
  if (!record.columns_name.empty() && (options.keep == Keep::whole || trace.level() > TraceLevel::hash)) {
    // What the columns are is needed where values are kept whole; their number stands in the record's shape.
    const std::vector<int64_t> shape{static_cast<int64_t>(record.columns.size())};
    trace.tensor(record.phase, record.columns_name + suffix, {record.columns.data(), DType::int64, shape, {}},
                 Sharing::own, {}, options.keep);
  }
  trace.tensor(record.phase, record.name + suffix, view_of(all, partitioned.positions), Sharing::own, partitioned.ids,
               options.keep);
}

void TracedStep::trace_gradients(const Options& options, const Outcome& outcome) {
  TraceWriter& trace = *context_.trace;
  if (!trace.enabled()) {
    reducer_->after_backward({}, {});
    return;
  }
  trace_reduced(options, outcome);
  reducer_->after_backward(local_hashes_, reduced_hashes_);
}

void TracedStep::trace_reduced(const Options& options, const Outcome& outcome) {
  TraceWriter& trace = *context_.trace;
  const ParameterList& parameters = context_.task->parameters();
  reduced_hashes_.clear();
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    const at::Tensor whole = parameters.tensors[i].grad();
    const at::Tensor own = (shards_ ? shards_->own(i, whole) : whole).contiguous();
    TensorView view = view_of(own);
    if (shards_) view.placement = &shards_->placement(i);
    const Sharing sharing = shards_ ? Sharing::own : Sharing::replicated;  // every rank writes what it holds
    reduced_hashes_.push_back(
        trace.tensor(Phase::reduced_gradients, parameters.names[i], view, sharing, {}, options.keep).hash);
  }
  trace.scalar(Phase::gradient_norm, "gradient_norm", outcome.gradient_norm, Sharing::replicated);
}

namespace {

enum Kind : int64_t { kNan, kPlus, kMinus };

double value_of(int64_t kind) {
  const double infinity = std::numeric_limits<double>::infinity();
  return kind == kNan ? std::numeric_limits<double>::quiet_NaN() : kind == kPlus ? infinity : -infinity;
}

int64_t kind_of(double value) { return std::isnan(value) ? kNan : value > 0 ? kPlus : kMinus; }

}  // namespace

void GradientGuard::begin() { own_.reset(); }

void GradientGuard::look(std::size_t tensor, const at::Tensor& gradient) {
  if (own_) return;
  // The sum is finite where all are, or may overflow: then each is looked at.
  if (std::isfinite(gradient.sum().item<double>())) return;
  const at::Tensor bad = gradient.contiguous().isfinite().logical_not().flatten();
  if (!bad.any().item<bool>()) return;
  const int64_t index = bad.to(at::kByte).argmax().item<int64_t>();
  own_ = NotFinite{0, tensor, index, gradient.contiguous().flatten()[index].item<double>()};
}

std::optional<NotFinite> GradientGuard::agree(Comm& comm) const {
  at::Tensor mine = at::zeros({4}, at::kLong);
  int64_t* const words = mine.mutable_data_ptr<int64_t>();
  if (own_) {
    words[0] = 1;
    words[1] = static_cast<int64_t>(own_->tensor);
    words[2] = own_->index;
    words[3] = kind_of(own_->value);
  }
  const at::Tensor all = comm.all_gather(mine, "nan_guard");
  std::optional<NotFinite> first;
  int ranks = 0;
  for (int rank = 0; rank < comm.world_size(); ++rank) {
    const int64_t* const theirs = all.const_data_ptr<int64_t>() + 4 * rank;
    if (theirs[0] == 0) continue;
    ++ranks;
    if (!first) first = NotFinite{rank, static_cast<std::size_t>(theirs[1]), theirs[2], value_of(theirs[3])};
  }
  if (first) first->ranks = ranks;
  return first;
}

std::string in_words(const NotFinite& found, const std::vector<std::string>& names, int64_t step) {
  const char* const value = std::isnan(found.value) ? "NaN" : found.value > 0 ? "infinity" : "-infinity";
  std::string text = c10::str("rank ", found.rank, ": the gradient of ", names.at(found.tensor), " is ", value, " at element ",
                              found.index, " (step ", step, ")");
  if (found.ranks > 1) text += c10::str("; ", found.ranks, " ranks have such a number");
  return text;
}

namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// What has come together for a node, and how many of those that give it something have not run yet.
struct Waiting {
  Node* node = nullptr;
  int givers = 0;
  variable_list inputs;
};

/// As PyTorch's: the node that was made last comes first; those of leaves have the highest number.
bool comes_later(const Waiting* a, const Waiting* b) { return a->node->sequence_nr() < b->node->sequence_nr(); }

void give(Waiting& to, std::size_t place, at::Tensor gradient) {
  if (!gradient.defined()) return;
  at::Tensor& sum = to.inputs[place];
  sum = sum.defined() ? sum + gradient : std::move(gradient);
}

variable_list with_hooks(Node& node, variable_list inputs) {
  for (const auto& hook : node.tensor_pre_hooks()) inputs = (*hook)(inputs);
  for (const auto& hook : node.pre_hooks()) inputs = (*hook)(inputs);
  LOCKSTEP_CHECK(node.post_hooks().empty(), "a row's backward pass knows no hooks behind a node");
  return inputs;
}

}  // namespace

struct RowBackward::Graph {
  std::vector<c10::intrusive_ptr<Node>> accumulators;  ///< by leaf
  std::unordered_map<const Node*, std::size_t> leaf_of;
  std::unordered_map<const Node*, std::size_t> index;  ///< in `waiting`
  std::vector<Waiting> waiting;
  std::vector<Waiting*> ready;  ///< a heap

  std::size_t index_of(Node* node) {
    const auto [at, is_new] = index.emplace(node, waiting.size());
    if (is_new) waiting.push_back({node, 0, variable_list(node->num_inputs())});
    return at->second;
  }

  void find_nodes(Node* root) {
    index.clear();
    waiting.clear();
    ready.clear();
    index_of(root);
    for (std::size_t at = 0; at < waiting.size(); ++at) {
      for (const Edge& edge : waiting[at].node->next_edges()) {
        if (edge.is_valid()) ++waiting[index_of(edge.function.get())].givers;
      }
    }
  }

  void make_ready(Waiting& node) {
    ready.push_back(&node);
    std::ranges::push_heap(ready, comes_later);
  }

  Waiting& next() {
    std::ranges::pop_heap(ready, comes_later);
    Waiting& node = *ready.back();
    ready.pop_back();
    return node;
  }

  void run(Waiting& from) {
    Node& node = *from.node;
    variable_list inputs = with_hooks(node, std::move(from.inputs)), outputs;
    if (node.is_traceable()) {
      // PyTorch's own: nothing that it computes is recorded, so that its operations go without what would look whether it is.
      const at::AutoDispatchBelowADInplaceOrView guard;
      outputs = node(std::move(inputs));
    } else {
      outputs = node(std::move(inputs));
    }
    const at::AutoDispatchBelowADInplaceOrView guard;
    torch::autograd::validate_outputs(node.next_edges(), outputs, [&](const std::string& problem) {
      return "Function " + node.name() + " returned an invalid gradient: " + problem;
    });
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const Edge& edge = node.next_edge(k);
      if (!edge.is_valid()) continue;
      Waiting& to = waiting[index.at(edge.function.get())];
      give(to, edge.input_nr, std::move(outputs[k]));
      if (--to.givers == 0) make_ready(to);
    }
  }
};

RowBackward::RowBackward(const std::vector<at::Tensor>& leaves) : graph_(std::make_unique<Graph>()) {
  for (const at::Tensor& leaf : leaves) {
    graph_->accumulators.push_back(torch::autograd::impl::gradient_edge(leaf).function);
    graph_->leaf_of.emplace(graph_->accumulators.back().get(), graph_->leaf_of.size());
  }
}

RowBackward::~RowBackward() = default;

std::vector<at::Tensor> RowBackward::gradients(const at::Tensor& loss) {
  std::vector<at::Tensor> gradients(graph_->accumulators.size());
  const Edge root = torch::autograd::impl::gradient_edge(loss);
  if (!root.is_valid()) return gradients;
  const c10::NoGradGuard no_grad;
  graph_->find_nodes(root.function.get());
  give(graph_->waiting.front(), root.input_nr, at::ones_like(loss, at::MemoryFormat::Preserve));
  graph_->make_ready(graph_->waiting.front());
  while (!graph_->ready.empty()) {
    Waiting& node = graph_->next();
    if (const auto leaf = graph_->leaf_of.find(node.node); leaf != graph_->leaf_of.end()) {
      gradients[leaf->second] = with_hooks(*node.node, std::move(node.inputs)).front();
    } else if (node.node->num_outputs() > 0) {
      graph_->run(node);
    }
  }
  graph_->waiting.clear();
  return gradients;
}

void StepMeter::begin(double now_s) { begun_ = {now_s, communicated()}; }

void StepMeter::end(double now_s, RankResult& result) {
  const CommunicationMeter now = communicated();
  steps_.push_back({now_s - begun_.seconds,
                    {now.seconds - begun_.communication.seconds,
                     now.received_bytes - begun_.communication.received_bytes}});
  result.train_seconds += steps_.back().seconds;
  result.communication_seconds += steps_.back().communication.seconds;
}

void StepMeter::fill(RankResult& result) const {
  const std::size_t first = steps_.size() > 1 ? std::max<std::size_t>(1, steps_.size() / 10) : 0;
  if (first >= steps_.size()) {
    return;
  }
  std::vector<double> durations;
  double all = 0, communication = 0, bytes = 0;
  for (std::size_t i = first; i < steps_.size(); ++i) {
    durations.push_back(steps_[i].seconds);
    all += steps_[i].seconds;
    communication += steps_[i].communication.seconds;
    bytes += steps_[i].communication.received_bytes;
  }
  result.communication_share = all > 0 ? communication / all : 0;
  result.received_bytes = bytes / static_cast<double>(durations.size());
  result.step_seconds = median(std::move(durations));
}

}  // namespace lockstep
