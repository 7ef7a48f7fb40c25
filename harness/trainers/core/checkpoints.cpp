#include "harness/trainers/core/checkpoints.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/judge/trace/reader.h"
#include "harness/lib/checkpoint/manifest.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep {

/// The state before the step at which the counters stand. Tensors point into the trainer's own. `sharded`: of parameters
/// and moments this rank's even slices.
static checkpoint::State training_state(const TrainingParts& parts, bool sharded);

namespace {

checkpoint::SaveOptions save_options(const RankContext& context, const CheckpointSetup& setup) {
  checkpoint::SaveOptions options;
  options.root = setup.root;
  options.config_hash = setup.config_hash;
  options.keep_last = context.config->checkpoint.keep;
  options.deadline_s = context.config->timeout_s;
  options.planted = setup.mistakes;
  return options;
}

const MetricSpec* metric_of(const RunConfig& config, const std::string& name) {
  for (const MetricSpec& metric : spec_of(config).metrics()) {
    if (metric.name == name) return &metric;
  }
  return nullptr;
}

}  // namespace

Checkpoints::Checkpoints(const RankContext& context, const CheckpointSetup& setup, Update& update, RankResult& result)
    : context_(context),
      setup_(setup),
      update_(update),
      result_(result),
      config_(context.config->checkpoint),
      deadline_s_(context.config->timeout_s),
      metric_(config_.best.empty() ? std::string(spec_of(*context.config).shown_metric) : config_.best),
      preemption_(*setup.signals, {.grace_s = config_.grace_s}),
      saver_(save_options(context, setup), *setup.storage, *setup.saving) {
  if (const MetricSpec* metric = metric_of(*context.config, metric_)) higher_is_better_ = metric->higher_is_better.value_or(true);
}

Checkpoints::~Checkpoints() = default;

TrainingParts Checkpoints::parts(BestEvaluation& best) {
  return {context_, update_, setup_.sampler, counters_, best, metric_, result_};
}

int64_t Checkpoints::find() {
  context_.heartbeat(0, "load");
  const checkpoint::State expected = training_state(parts(best_), false);
  checkpoint::LoadOptions options;
  options.root = setup_.root;
  options.config_hash = setup_.config_hash;
  options.expected = &expected;
  options.fresh_start = setup_.fresh_start;
  options.deadline_s = deadline_s_;
  loaded_ = checkpoint::load(options, *setup_.storage, *setup_.saving);
  CheckpointsOfRank& told = result_.checkpoints;
  told.remarks = loaded_.refused;
  told.remarks.insert(told.remarks.end(), loaded_.remarks.begin(), loaded_.remarks.end());
  if (!loaded_) throw std::runtime_error("no checkpoint can be gone on from: " + loaded_.problem);
  if (loaded_.loaded == checkpoint::Loaded::fresh) return 0;
  told.resumed_at = loaded_.manifest.step;
  told.resumed_from = loaded_.name;
  return loaded_.manifest.step;
}

void Checkpoints::restore() {
  lockstep::restore(parts(best_), loaded_, {setup_.not_restored, setup_.unchecked});
  loaded_.state = {};
  loaded_.of_ranks.clear();
  last_saved_ = result_.checkpoints.resumed_at;
  if (last_saved_ == 0) return;
  std::vector<std::string>& remarks = result_.checkpoints.remarks;
  if (best_.step >= 0 && loaded_.best_step != best_.step) {
    remarks.push_back(c10::str("the checkpoint of the best evaluation so far, step ", best_.step,
                               ", is not whole in this folder: best_model will name the best of those that stand or come"));
    best_ = {};
  }
  for (const std::string& left : saver_.finish_earlier()) remarks.push_back(left);
}

/// Returns why steps are missing, if the first missing one, `next`, is not `begin`.
std::string Checkpoints::copy_trace(int64_t begin, int64_t& next) {
  try {
    TraceReader earlier(setup_.trace);
    const TraceHeader& header = earlier.header();
    if (header.config_hash != result_.config_hash || header.world_size != result_.world_size)
      return setup_.trace + " is of another config or number of ranks";
    while (next < begin) {
      const std::optional<StepRecords> step = earlier.next();
      if (!step) return earlier.end();
      if (step->step < 0) continue;  // initial parameters, which this attempt has written
      context_.trace->copy(*step);
      next = step->step + 1;
    }
    return "";
  } catch (const TraceError& error) {
    return error.what();
  }
}

void Checkpoints::take_over_trace(int64_t begin) {
  if (!context_.trace->enabled()) return;
  int64_t next = 0;
  if (begin > 0) {
    const std::string problem = copy_trace(begin, next);
    if (next < begin) {
      result_.checkpoints.remarks.push_back(
          c10::str("the trace lacks steps ", next, " to ", begin - 1, " of the run: ", problem));
    }
  }
  std::error_code error;
  std::filesystem::rename(setup_.new_trace, setup_.trace, error);
  if (error) throw MachineError(setup_.trace + ": cannot be replaced: " + error.message());
}

bool Checkpoints::stops_at_begin() {
  if (!agree(result_.checkpoints.resumed_at, false)) return false;
  stop(result_.checkpoints.resumed_at);
  return true;
}

/// Each rank tells the signal that it got, rank 0 the metric that it alone measured. True: the run is to stop.
bool Checkpoints::agree(int64_t done, bool evaluated) {
  std::string mine = std::to_string(preemption_.tells());
  if (evaluated && context_.rank == 0) {
    const auto curve = result_.curves.find(metric_);
    if (curve != result_.curves.end() && curve->second.steps.back() == done)
      mine += " " + hex16(std::bit_cast<uint64_t>(curve->second.values.back()));
  }
  const checkpoint::Gathered all = setup_.agreeing->all_gather("after step " + std::to_string(done), mine, deadline_s_);
  if (!all) throw std::runtime_error("the ranks could not agree after step " + std::to_string(done) +
                                     ", lost its peer: " + all.problem);
  int signal = 0;
  for (const std::string& text : all.texts) {
    int number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    signal = std::max(signal, number);
  }
  const std::size_t space = all.texts[0].find(' ');
  if (space != std::string::npos)
    evaluated_ = {std::bit_cast<double>(from_hex16(all.texts[0].substr(space + 1)).value_or(0)), done};
  return preemption_.heard(signal);
}

bool Checkpoints::after_step(int64_t done, bool evaluated, bool last) {
  counters_ = {counters_.rate + 1, counters_.samples + 1, counters_.draws + 1};
  const bool stops = agree(done, evaluated) && !last;
  if (stops || checkpoint::due(done, config_.every)) save(done);
  if (stops) stop(done);
  return stops;
}

/// Is there an evaluation of this very state, better than that of every state that was saved?
bool Checkpoints::is_best_now(int64_t done) const {
  if (evaluated_.step != done || evaluated_.value != evaluated_.value) return false;
  return best_.step < 0 || (higher_is_better_ ? evaluated_.value > best_.value : evaluated_.value < best_.value);
}

void Checkpoints::save(int64_t done) {
  const double began_s = monotonic_s();
  context_.heartbeat(done, "save");
  // Only what was saved can be the best that is saved.
  note(saver_.wait());
  const bool is_best = is_best_now(done);
  candidate_ = is_best ? evaluated_ : best_;
  checkpoint::State state = training_state(parts(candidate_), config_.sharded);
  if (!setup_.not_saved.empty()) state.sections.erase(setup_.not_saved);
  const checkpoint::SaveRequest request{setup_.sampler.position_at(counters_.samples).epoch, done, is_best};
  if (config_.async && preemption_.agreed() == 0)
    saver_.save_async(request, state);
  else
    note(saver_.save(request, state));
  result_.checkpoints.seconds += monotonic_s() - began_s;
}

void Checkpoints::note(const std::optional<checkpoint::SaveOutcome>& outcome) {
  if (!outcome) return;
  if (!*outcome) {
    std::fprintf(stderr, "rank %d: %s\n", context_.rank, outcome->problem.c_str());
    result_.checkpoints.problems.push_back(outcome->problem);
    return;
  }
  best_ = candidate_;
  last_saved_ = checkpoint::parse_entry_name(outcome->name).step;
  result_.checkpoints.saved.push_back(last_saved_);
  for (const std::string& remark : outcome->remarks)
    result_.checkpoints.remarks.push_back(c10::str("after step ", last_saved_, " was saved: ", remark));
}

void Checkpoints::stop(int64_t done) {
  result_.checkpoints.stop_signal = preemption_.agreed();
  result_.checkpoints.stop_seconds = config_.grace_s - preemption_.left_s();
  const std::string kept = last_saved_ == done && done > 0 ? c10::str("saved as step ", done)
                           : last_saved_ > 0             ? c10::str("the newest checkpoint is of step ", last_saved_)
                                                         : std::string("nothing was saved");
  result_.error = c10::str("stopped by signal ", preemption_.agreed(), " (SIG", ::sigabbrev_np(preemption_.agreed()),
                           ") after step ", done, ": ", kept);
}

void Checkpoints::finish() {
  note(saver_.wait());
  if (config_.required && !result_.checkpoints.problems.empty())
    throw std::runtime_error("checkpoint.required: " + problem_words(result_.checkpoints));
}

namespace {

using checkpoint::Section;
using checkpoint::State;
namespace kind = checkpoint::kind;

constexpr const char* kFirstMoment = "first_moment/";
constexpr const char* kSecondMoment = "second_moment/";
constexpr const char* kAverage = "average/";
constexpr const char* kSeries = "series";
/// Draws are keyed by purpose, step and sample: seed, mode and step are all the state that they have.
constexpr const char* kDraws = "stream/draws";

std::string dtype_of_tensor(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return "F32";
    case at::kDouble:
      return "F64";
    case at::kBFloat16:
      return "BF16";
    case at::kHalf:
      return "F16";
    case at::kLong:
      return "I64";
    case at::kInt:
      return "I32";
    case at::kBool:
      return "BOOL";
    default:
      throw std::runtime_error(c10::str("a checkpoint holds no tensors of ", c10::toString(tensor.scalar_type())));
  }
}

checkpoint::Tensor entry_of(const std::string& name, const at::Tensor& value, bool sharded, const RankContext& context) {
  const at::Tensor plain = value.detach().contiguous();
  checkpoint::Tensor entry;
  entry.name = name;
  entry.dtype = dtype_of_tensor(plain);
  entry.shape = plain.sizes().vec();
  entry.keeps = std::make_shared<at::Tensor>(plain);
  const auto* first = static_cast<const std::byte*>(plain.const_data_ptr());
  entry.bytes = {first, plain.nbytes()};
  if (!sharded) return entry;
  entry.placement = checkpoint::Placement::sharded;
  entry.slice = checkpoint::even_slice(plain.numel(), context.rank, context.comm->world_size());
  const auto element = static_cast<std::size_t>(plain.element_size());
  entry.bytes = entry.bytes.subspan(static_cast<std::size_t>(entry.slice.begin) * element,
                                    static_cast<std::size_t>(entry.slice.end - entry.slice.begin) * element);
  return entry;
}

const checkpoint::Tensor* find_tensor(const Section& section, const std::string& name) {
  for (const checkpoint::Tensor& tensor : section.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

void copy_into(const Section& section, const std::string& name, const at::Tensor& value) {
  const checkpoint::Tensor* const found = find_tensor(section, name);
  if (found == nullptr || found->bytes.size() != value.nbytes())
    throw std::runtime_error("the checkpoint holds " + name + " in another shape than this model's");
  at::Tensor whole = at::empty(value.sizes(), value.options());
  std::memcpy(whole.mutable_data_ptr(), found->bytes.data(), found->bytes.size());
  value.copy_(whole);
}

/// Which moments the optimizer keeps once it has made an update.
bool has_first(const RunConfig& config) { return config.optimizer != OptimizerKind::sgd || config.momentum != 0; }
bool has_second(const RunConfig& config) { return config.optimizer != OptimizerKind::sgd; }

/// Numbers that the optimizer keeps a copy of.
std::vector<std::pair<const char*, double*>> cached_numbers(RunConfig& config) {
  return {{"momentum", &config.momentum}, {"beta1", &config.beta1}, {"beta2", &config.beta2},
          {"eps", &config.eps},           {"weight_decay", &config.weight_decay}};
}

std::string bits_of(double value) { return hex16(std::bit_cast<uint64_t>(value)); }
double from_bits(const nlohmann::json& text) {
  return std::bit_cast<double>(from_hex16(text.get<std::string>()).value_or(0));
}

void put_tensors(const TrainingParts& parts, bool sharded, State& state) {
  const ParameterList& parameters = parts.context.task->parameters();
  Section& weights = state[kind::parameters];
  const auto put_moment = [&](const std::string& name, const at::Tensor& moment, const at::Tensor& like) {
    // Before its first update sgd has none; its place is a zero of its shape.
    state[kind::moments].tensors.push_back(entry_of(name, moment.defined() ? moment : at::zeros_like(like), sharded, parts.context));
  };
  Optimizer& optimizer = parts.update.optimizer();
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    const std::string& name = parameters.names[i];
    const at::Tensor value = parameters.tensors[i].detach();
    weights.tensors.push_back(entry_of(name, value, sharded, parts.context));
    if (has_first(*parts.context.config)) put_moment(kFirstMoment + name, optimizer.first_moments()[i], value);
    if (has_second(*parts.context.config)) put_moment(kSecondMoment + name, optimizer.second_moments()[i], value);
    if (!parts.update.averages().empty()) put_moment(kAverage + name, parts.update.averages()[i], value);
  }
  for (const NamedBuffer& buffer : parts.context.task->buffers())
    state[kind::normalisers].tensors.push_back(entry_of(buffer.name, buffer.value, false, parts.context));
}

/// Curves and metrics of this rank's result in one tensor of its own: how long they are differs between ranks.
void put_curves(const RankResult& result, State& state) {
  nlohmann::json told = {{"curves", nlohmann::json::object()}, {"metrics", nlohmann::json::object()}};
  nlohmann::json& curves = told["curves"];
  for (const auto& [name, value] : result.metrics) told["metrics"][name] = std::bit_cast<uint64_t>(value);
  for (const auto& [name, series] : result.curves) {
    std::vector<uint64_t> bits;
    for (const double value : series.values) bits.push_back(std::bit_cast<uint64_t>(value));
    curves[name] = {{"steps", series.steps}, {"bits", bits}};
  }
  const auto bytes = std::make_shared<std::vector<uint8_t>>(nlohmann::json::to_cbor(told));
  checkpoint::Tensor tensor;
  tensor.name = kSeries;
  tensor.dtype = "U8";
  tensor.shape = {static_cast<int64_t>(bytes->size())};
  tensor.placement = checkpoint::Placement::per_rank;
  tensor.bytes = std::as_bytes(std::span(*bytes));
  tensor.keeps = bytes;
  state[kind::curves].tensors.push_back(std::move(tensor));
}

/// False if the state holds none.
bool take_curves(const State& state, RankResult& result) {
  const Section* const section = state.find(kind::curves);
  const checkpoint::Tensor* const tensor = section == nullptr ? nullptr : find_tensor(*section, kSeries);
  if (tensor == nullptr) return false;
  const auto* first = reinterpret_cast<const uint8_t*>(tensor->bytes.data());
  const nlohmann::json told = nlohmann::json::from_cbor(first, first + tensor->bytes.size());
  result.curves.clear();
  for (const auto& [name, bits] : told.at("metrics").items()) result.metrics[name] = std::bit_cast<double>(bits.get<uint64_t>());
  for (const auto& [name, series] : told.at("curves").items()) {
    Series& into = result.curves[name];
    into.steps = series.at("steps").get<std::vector<int64_t>>();
    for (const uint64_t bits : series.at("bits").get<std::vector<uint64_t>>())
      into.values.push_back(std::bit_cast<double>(bits));
  }
  return true;
}

/// What one rank of another number of them goes on from: of the curves that all ranks had, their mean, so that the mean over the
/// new ranks is that over the old ones; on rank 0 also what rank 0 alone had.
RankResult curves_of_all(const std::vector<State>& ranks, int rank) {
  RankResult first;
  if (ranks.empty() || !take_curves(ranks[0], first)) return {};
  RankResult own = rank == 0 ? first : RankResult{};
  std::vector<RankResult> all(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) take_curves(ranks[r], all[r]);
  for (const auto& [name, series] : first.curves) {
    Series mean = series;
    bool of_all = true;
    for (std::size_t i = 0; i < mean.values.size() && of_all; ++i) {
      double sum = 0;
      bool alike = true;
      for (const RankResult& each : all) {
        const auto found = each.curves.find(name);
        of_all = of_all && found != each.curves.end() && found->second.steps == series.steps;
        if (!of_all) break;
        sum += found->second.values[i];
        alike = alike && same_bits(found->second.values[i], series.values[i]);
      }
      if (!alike) mean.values[i] = sum / static_cast<double>(all.size());
    }
    if (of_all) own.curves[name] = std::move(mean);
  }
  return own;
}

void take_tensors(const TrainingParts& parts, const State& state) {
  const c10::NoGradGuard no_grad;
  const ParameterList& parameters = parts.context.task->parameters();
  Optimizer& optimizer = parts.update.optimizer();
  const auto take_moment = [](const Section& moments, const std::string& name, const at::Tensor& like, at::Tensor& into) {
    if (!into.defined()) into = at::zeros_like(like);
    copy_into(moments, name, into);
  };
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    const std::string& name = parameters.names[i];
    const at::Tensor value = parameters.tensors[i].detach();
    if (const Section* weights = state.find(kind::parameters)) copy_into(*weights, name, value);
    const Section* const moments = state.find(kind::moments);
    if (moments == nullptr) continue;
    if (has_first(*parts.context.config)) take_moment(*moments, kFirstMoment + name, value, optimizer.first_moments()[i]);
    if (has_second(*parts.context.config)) take_moment(*moments, kSecondMoment + name, value, optimizer.second_moments()[i]);
    if (!parts.update.averages().empty()) take_moment(*moments, kAverage + name, value, parts.update.averages()[i]);
  }
  const Section* const normalisers = state.find(kind::normalisers);
  for (const NamedBuffer& buffer : parts.context.task->buffers()) {
    if (normalisers != nullptr) copy_into(*normalisers, buffer.name, buffer.value);
  }
}

/// The sampler's three kinds say together which rows come next; one that is missing is as at the beginning.
void take_position(const TrainingParts& parts, const State& state) {
  checkpoint::SamplerPosition position = parts.sampler.position_at(0);
  const Section* const epoch = state.find(kind::sampler_epoch);
  const Section* const cursor = state.find(kind::sampler_cursor);
  const Section* const permutation = state.find(kind::sampler_permutation);
  if (epoch != nullptr) position.epoch = epoch->values.at("epoch").get<int64_t>();
  if (cursor != nullptr) position.cursor = cursor->values.at("sample").get<int64_t>();
  position.permutation_hash.clear();
  if (epoch != nullptr && permutation != nullptr) {
    position.samples = permutation->values.at("samples").get<int64_t>();
    position.permutation_hash = permutation->values.at("hash").get<std::string>();
  }
  std::string problem;
  parts.counters.samples = parts.sampler.step_at(position, problem);
  if (!problem.empty()) throw std::runtime_error(problem);
}

void take_counters(const TrainingParts& parts, const State& state) {
  if (const Section* section = state.find(kind::optimizer_step))
    parts.update.optimizer().updates() = section->values.at("updates").get<int64_t>();
  if (const Section* section = state.find(kind::scheduler)) parts.counters.rate = section->values.at("step").get<int64_t>();
  if (const Section* section = state.find(kDraws)) parts.counters.draws = section->values.at("step").get<int64_t>();
  if (const Section* section = state.find(kind::best_metric)) {
    parts.best.step = section->values.at("step").get<int64_t>();
    parts.best.value = from_bits(section->values.at("bits"));
  }
  if (const Section* section = state.find(kind::cached_controls)) {
    for (const auto& [name, number] : cached_numbers(parts.update.optimizer().config()))
      *number = from_bits(section->values.at(name));
  }
  take_position(parts, state);
}

}  // namespace

State training_state(const TrainingParts& parts, bool sharded) {
  const RunConfig& config = *parts.context.config;
  State state;
  put_tensors(parts, sharded, state);
  state[kind::optimizer_step].values["updates"] = parts.update.optimizer().updates();
  state[kind::scheduler].values["step"] = parts.counters.rate;
  // Saves stand between steps: no micro-step of the next one has begun.
  state[kind::accumulation].values = {{"micro_step", 0}, {"micro_steps", config.accumulation}};
  checkpoint::put_position(state, parts.sampler.position_at(parts.counters.samples));
  state[kDraws].values = {{"seed", config.seed},
                          {"mode", std::string(words_of(config.rank_seed)[static_cast<std::size_t>(config.rank_seed)])},
                          {"step", parts.counters.draws}};
  state[kind::best_metric].values = {
      {"metric", parts.best_metric}, {"step", parts.best.step}, {"bits", bits_of(parts.best.value)}};
  for (const auto& [name, number] : cached_numbers(parts.update.optimizer().config()))
    state[kind::cached_controls].values[name] = bits_of(*number);
  put_curves(parts.result, state);
  return state;
}

void restore(const TrainingParts& parts, const checkpoint::LoadOutcome& loaded, const LeftOut& left_out) {
  State whole = loaded.state;
  if (!loaded.of_ranks.empty()) {
    const auto rank = static_cast<std::size_t>(parts.context.rank);
    const bool as_many = loaded.of_ranks.size() == static_cast<std::size_t>(parts.context.comm->world_size());
    if (as_many) whole.sections[std::string(kind::curves)] = *loaded.of_ranks[rank].find(kind::curves);
    else put_curves(curves_of_all(loaded.of_ranks, parts.context.rank), whole);
  }
  State taken = whole;
  if (!left_out.kind.empty()) taken.sections.erase(left_out.kind);
  take_tensors(parts, taken);
  take_counters(parts, taken);
  take_curves(taken, parts.result);
  if (left_out.unchecked) return;
  const std::vector<std::string> differences = state_differences(whole, training_state(parts, false));
  if (!differences.empty())
    throw std::runtime_error("the run did not come to stand where " + loaded.name + " was saved: " + differences.front());
}

}  // namespace lockstep
