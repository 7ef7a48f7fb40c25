#include "harness/suites/checkpoint/toy_trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness/base/errors.h"
#include "harness/base/hashing.h"

namespace lockstep::toy {

using checkpoint::Gathered;
using checkpoint::Group;
using checkpoint::SamplerPosition;
using checkpoint::Slice;

namespace {

constexpr uint64_t kDropout = 11, kNoise = 12, kJitter = 13;
// Places in what ranks send: the step's own sums, then those of the accumulated gradient.
constexpr std::size_t kLoss = 0, kRows = 1, kSums = 2, kSquares = kSums + kInputs, kStepSums = kSquares + kInputs;
constexpr std::size_t kTold = kStepSums, kOverflow = kTold + 1, kAccumulatedRows = kOverflow + 1,
                      kGradient = kAccumulatedRows + 1;

template <class Value>
std::string bytes_of(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

template <class Value>
std::vector<Value> values_of(const std::string& bytes) {
  std::vector<Value> values(bytes.size() / sizeof(Value));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Value));
  return values;
}

/// Sums over ranks; what was told and overflows are the greatest of all.
std::vector<int64_t> reduced(const Gathered& all) {
  std::vector<int64_t> total;
  for (const std::string& text : all.texts) {
    const std::vector<int64_t> theirs = values_of<int64_t>(text);
    if (total.empty()) total.resize(theirs.size());
    LOCKSTEP_CHECK(theirs.size() == total.size(), "all ranks are at the same step of an update");
    for (std::size_t at = 0; at < total.size(); ++at) {
      const bool greatest = at == kTold || at == kOverflow;
      total[at] = greatest ? std::max(total[at], theirs[at]) : total[at] + theirs[at];
    }
  }
  return total;
}

std::array<float, kInputs> normalised(const std::array<float, kInputs>& input, const Normaliser& by) {
  std::array<float, kInputs> result{};
  for (std::size_t at = 0; at < result.size(); ++at) {
    result[at] = static_cast<float>((static_cast<double>(input[at]) - by.mean[at]) / std::sqrt(by.variance[at] + 1e-3));
  }
  return result;
}

}  // namespace

uint64_t dropout_bits(uint64_t seed, int64_t row) { return keyed(seed, kDropout, row); }

TrainerState initial_state(const Config& config, int rank, int ranks) {
  TrainerState now;
  now.parameters = initial_parameters(config.seed);
  const Slice slice = checkpoint::even_slice(kParameters, rank, ranks);
  now.first.resize(static_cast<std::size_t>(slice.end - slice.begin));
  now.second.resize(now.first.size());
  now.accumulated.resize(kParameters);
  now.sampler.samples = config.samples;
  now.sampler.seed = static_cast<int64_t>(config.seed);
  now.noise.word = keyed(config.seed, kNoise) | 1;
  now.jitter.word = keyed(config.seed, kJitter, rank) | 1;
  now.patience.left = config.patience;
  now.averaged = now.parameters;
  now.controls = {kBaseRate * now.scheduler.factor(), kDecay};
  now.cached_base_rate = kBaseRate;
  return now;
}

Trainer::Trainer(Config config, int rank, int ranks)
    : config_(std::move(config)), rank_(rank), ranks_(ranks), now_(initial_state(config_, rank, ranks)) {}

checkpoint::State Trainer::state() const { return to_checkpoint(now_, config_, rank_, ranks_); }

void Trainer::restore(const checkpoint::LoadOutcome& loaded) {
  steps_ = loaded.manifest.step;
  from_checkpoint(loaded, config_, rank_, ranks_, now_);
}

const std::vector<int64_t>& Trainer::order() const {
  if (order_seed_ != now_.sampler.seed || order_epoch_ != now_.sampler.epoch) {
    order_ = order_of(now_.sampler.seed, now_.sampler.epoch, now_.sampler.samples);
    order_seed_ = now_.sampler.seed;
    order_epoch_ = now_.sampler.epoch;
  }
  return order_;
}

Trainer::Batch Trainer::next_batch() const {
  const int64_t rows = config_.rows_of_step(ranks_);
  SamplerPosition ends_here = now_.sampler;
  ends_here.samples = std::min(ends_here.samples, ends_here.cursor + rows);
  Batch batch;
  batch.begin = ends_here.cursor;
  batch.rows = ends_here.samples - ends_here.cursor;
  batch.mine = checkpoint::next_places(ends_here, rank_, ranks_, (rows + ranks_ - 1) / ranks_);
  batch.sums.resize(kStepSums);
  return batch;
}

void Trainer::advance_sampler(int64_t rows) {
  const SamplerPosition before = now_.sampler;
  now_.sampler = checkpoint::advanced(before, 1, rows);
  if (now_.sampler.epoch != before.epoch) now_.sampler.seed = next_seed(before.seed, before.epoch);
}

/// This rank's rows, one by one; what they come to is added to the accumulated gradient.
void Trainer::forward(Batch& batch, StepRecord& record) {
  record.gradient.resize(kParameters);
  if (config_.jitter) record.jitter = now_.jitter.next();
  for (const int64_t place : batch.mine) {
    const int64_t id = order()[static_cast<std::size_t>(place)];
    Row data = row(config_.seed, id);
    record.own.push_back(id);
    if (config_.jitter) {
      for (float& value : data.input) value += static_cast<float>(0.1 * unit_interval(now_.jitter.next()) - 0.05);
    }
    for (std::size_t at = 0; at < kInputs; ++at) {
      const auto value = static_cast<double>(data.input[at]);
      batch.sums[kSums + at] += std::llrint(value / kUnit);
      batch.sums[kSquares + at] += std::llrint(value * value / kUnit);
    }
    const uint64_t bits = dropout_bits(config_.seed, now_.dropout + place - batch.begin);
    std::array<float, kHidden> kept{};
    for (std::size_t unit = 0; unit < kHidden; ++unit) kept[unit] = (bits >> (16 * unit)) % 4 == 0 ? 0.0F : 4.0F / 3;
    const RowResult result =
        forward_backward(now_.parameters, normalised(data.input, now_.normaliser), data.target, kept);
    for (std::size_t at = 0; at < kParameters; ++at) record.gradient[at] += result.gradient[at];
    batch.sums[kLoss] += std::llrint(result.loss / kUnit);
    constexpr double kLargest = 8192;
    if (static_cast<double>(result.largest) * now_.loss_scale.scale > kLargest) now_.accumulated_overflow = true;
  }
  batch.sums[kRows] = static_cast<int64_t>(batch.mine.size());
  for (std::size_t at = 0; at < kParameters; ++at) now_.accumulated[at] += record.gradient[at];
  now_.accumulated_rows += batch.sums[kRows];
}

StepDone Trainer::step(Group& group, const StepOptions& options) {
  StepDone done;
  StepRecord& record = done.record;
  Batch batch = next_batch();
  record.step = steps_ + 1;
  record.epoch = now_.sampler.epoch;
  for (int64_t at = 0; at < batch.rows; ++at)
    record.samples.push_back(order()[static_cast<std::size_t>(batch.begin + at)]);
  record.micro = now_.micro;
  record.dropout = dropout_bits(config_.seed, now_.dropout);
  record.normaliser = now_.normaliser;
  record.scale = now_.loss_scale.scale;
  record.parameters = now_.parameters;
  forward(batch, record);
  const bool updates = now_.micro + 1 >= config_.accumulate;
  std::vector<int64_t> mine = batch.sums;
  mine.push_back(options.tells);
  mine.push_back(now_.accumulated_overflow ? 1 : 0);
  if (updates) {
    mine.push_back(now_.accumulated_rows);
    mine.insert(mine.end(), now_.accumulated.begin(), now_.accumulated.end());
  }
  const Gathered all = group.all_gather("step", bytes_of(mine), options.deadline_s);
  done.problem = all.problem;
  if (!all) return done;
  const std::vector<int64_t> sums = reduced(all);
  done.heard = static_cast<int>(sums[kTold]);
  record.loss = static_cast<double>(sums[kLoss]) * kUnit / static_cast<double>(std::max<int64_t>(1, sums[kRows]));
  now_.normaliser.after_batch(sums[kRows], std::span(sums).subspan(kSums, kInputs),
                              std::span(sums).subspan(kSquares, kInputs));
  now_.dropout += batch.rows;
  ++now_.micro;
  if (updates) done.problem = update(group, options.deadline_s, sums, record);
  if (!done.problem.empty()) return done;
  advance_sampler(batch.rows);
  ++steps_;
  change_controls(steps_, now_.controls, now_.cached_base_rate);
  just_improved_ = false;
  if (steps_ % config_.evaluate_every == 0) {
    if (options.on_evaluation) options.on_evaluation();
    evaluate(record);
  }
  return done;
}

std::string Trainer::update(Group& group, double deadline_s, const std::vector<int64_t>& sums, StepRecord& record) {
  UpdateRecord& update = record.update.emplace();
  update.total.assign(sums.begin() + kGradient, sums.end());
  update.rows = sums[kAccumulatedRows];
  update.overflow = sums[kOverflow] != 0;
  update.rate = now_.controls.rate;
  update.decay = now_.controls.decay;
  Generator& noise = now_.noise;
  update.noise = noise.next();
  std::vector<float> gradient(kParameters);
  double square = 0;
  for (std::size_t at = 0; at < kParameters; ++at) {
    const double mean = static_cast<double>(update.total[at]) * kUnit / static_cast<double>(update.rows);
    gradient[at] = static_cast<float>(mean + 1e-3 * (unit_interval(noise.next()) - 0.5));
    square += static_cast<double>(gradient[at]) * static_cast<double>(gradient[at]);
  }
  constexpr double kLongest = 4;
  if (square > kLongest * kLongest) {
    for (float& each : gradient) each = static_cast<float>(static_cast<double>(each) * kLongest / std::sqrt(square));
  }
  if (!update.overflow) {
    const Slice own = slice();
    std::vector<float> direction(now_.first.size());
    adam(std::span(gradient).subspan(static_cast<std::size_t>(own.begin), direction.size()), now_.first, now_.second,
         ++now_.updates, direction);
    const Gathered all = group.all_gather("update", bytes_of(direction), deadline_s);
    if (!all) return all.problem;
    for (const std::string& text : all.texts) {
      const std::vector<float> theirs = values_of<float>(text);
      update.direction.insert(update.direction.end(), theirs.begin(), theirs.end());
    }
    const auto rate = static_cast<float>(update.rate), decay = static_cast<float>(update.decay);
    for (std::size_t at = 0; at < kParameters; ++at)
      now_.parameters[at] -= rate * (update.direction[at] + decay * now_.parameters[at]);
    average(now_.averaged, now_.parameters);
    now_.scheduler.after_update();
  }
  update.factor = now_.scheduler.factor();
  now_.controls.rate = now_.cached_base_rate * update.factor;
  now_.loss_scale.after_update(update.overflow);
  update.gradient = std::move(gradient);
  update.parameters = now_.parameters;
  now_.micro = 0;
  std::ranges::fill(now_.accumulated, 0);
  now_.accumulated_rows = 0;
  now_.accumulated_overflow = false;
  return "";
}

/// Of four parts of the evaluation's rows each is taken in turn.
void Trainer::evaluate(StepRecord& record) {
  constexpr int64_t kRowsOfEvaluation = 12, kParts = 4;
  const int64_t first = steps_ / config_.evaluate_every % kParts * kRowsOfEvaluation + 1;
  double sum = 0;
  for (int64_t at = first; at < first + kRowsOfEvaluation; ++at) {
    const Row data = row(config_.seed, -at);
    sum += row_loss(now_.averaged, normalised(data.input, now_.normaliser), data.target);
  }
  EvaluationRecord& evaluation = record.evaluation.emplace();
  evaluation.averaged = now_.averaged;
  evaluation.metric = sum / kRowsOfEvaluation;
  evaluation.best_before = now_.patience.best;
  just_improved_ = now_.patience.after_evaluation(evaluation.metric, config_.patience);
  evaluation.left = now_.patience.left;
  now_.scheduler.after_evaluation(evaluation.metric);
}

}  // namespace lockstep::toy
