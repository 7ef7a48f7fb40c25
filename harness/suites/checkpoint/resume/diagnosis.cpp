#include "harness/suites/checkpoint/resume/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/base/hex.h"
#include "harness/lib/checkpoint/state.h"

namespace lockstep::resume {

namespace kind = checkpoint::kind;
using toy::kParameters;
using toy::StepRecord;
using toy::UpdateRecord;

namespace {

/// Where the ids stand in this order, one after the other; -1: nowhere.
int64_t place_in(const std::vector<int64_t>& order, const std::vector<int64_t>& ids) {
  const auto at = std::ranges::search(order, ids);
  return at.empty() && !ids.empty() ? -1 : at.begin() - order.begin();
}

template <class Values>
std::string differing(const Values& expected, const Values& seen) {
  std::size_t count = 0, first = 0;
  for (std::size_t at = 0; at < expected.size(); ++at) {
    if (expected[at] != seen[at] && count++ == 0) first = at;
  }
  return fmt::format("{} of {} values differ; value {}: {} expected, {} seen", count, expected.size(), first,
                     expected[first], seen[first]);
}

/// Adam's direction over all parameters, from these moments; they move on.
std::vector<float> direction_of(const std::vector<float>& gradient, std::vector<float>& first,
                                std::vector<float>& second, int64_t update) {
  std::vector<float> direction(gradient.size());
  toy::adam(gradient, first, second, update, direction);
  return direction;
}

std::string shown(double metric) { return metric == toy::kNone ? "none" : fmt::format("{}", metric); }

}  // namespace

Diagnosis::Diagnosis(toy::Config config, std::vector<toy::TrainerState> at_stop)
    : config_(std::move(config)), now_(at_stop.at(0)), accumulated_(kParameters) {
  for (const toy::TrainerState& rank : at_stop) {
    jitters_.push_back(rank.jitter);
    first_.insert(first_.end(), rank.first.begin(), rank.first.end());
    second_.insert(second_.end(), rank.second.begin(), rank.second.end());
    for (std::size_t at = 0; at < accumulated_.size(); ++at) accumulated_[at] += rank.accumulated[at];
    accumulated_rows_ += rank.accumulated_rows;
  }
}

void Diagnosis::name(std::string_view kind_name, int64_t step, const std::string& found) {
  if (std::ranges::find(lost_, kind_name, &LostKind::kind) != lost_.end()) return;
  lost_.push_back({std::string(kind_name), step, fmt::format("{}: {}", checkpoint::words_of(kind_name), found)});
}

void Diagnosis::take(const std::vector<StepRecord>& ranks) {
  const StepRecord& record = ranks.at(0);
  if (first_step_) {
    judge_reading(record);
    judge_draws(ranks);
  }
  judge_step(record);
  first_step_ = false;
  for (const StepRecord& own : ranks) {
    for (std::size_t at = 0; at < accumulated_.size(); ++at) accumulated_[at] += own.gradient[at];
    accumulated_rows_ += static_cast<int64_t>(own.own.size());
  }
  ++now_.micro;
  if (record.update) judge_update(record);
  toy::change_controls(record.step, now_.controls, now_.cached_base_rate);
  if (record.evaluation) judge_evaluation(record.step, *record.evaluation);
}

/// Which samples were read: the epoch is written down; the order tells the permutation, the place in it the cursor.
void Diagnosis::judge_reading(const StepRecord& record) {
  const checkpoint::SamplerPosition& position = now_.sampler;
  if (record.epoch != position.epoch)
    name(kind::sampler_epoch, record.step, fmt::format("epoch {} expected, {} seen", position.epoch, record.epoch));
  int64_t place = place_in(toy::order_of(position.seed, record.epoch, position.samples), record.samples);
  if (place < 0) {
    const auto order = toy::order_of(position.seed, position.epoch, position.samples);
    const auto begin = order.begin() + position.cursor;
    const auto count = std::min<int64_t>(static_cast<int64_t>(record.samples.size()), order.end() - begin);
    const auto first = static_cast<int64_t>(config_.seed);
    place = place_in(toy::order_of(first, record.epoch, position.samples), record.samples);
    name(kind::sampler_permutation, record.step,
         fmt::format("samples {} expected, {} seen, {}", fmt::join(begin, begin + count, " "),
                     fmt::join(record.samples, " "),
                     place < 0 ? std::string("in an order that is none of this run's")
                               : fmt::format("in the order that the run's first seed, {}, gives", first)));
  }
  if (place >= 0 && place != position.cursor)
    name(kind::sampler_cursor, record.step, fmt::format("sample {} expected, {} seen", position.cursor, place));
}

void Diagnosis::judge_draws(const std::vector<StepRecord>& ranks) {
  const StepRecord& record = ranks[0];
  const auto bits = [&](int64_t row) { return toy::dropout_bits(config_.seed, row); };
  if (record.dropout != bits(now_.dropout)) {
    int64_t row = 0;
    while (row < now_.dropout && bits(row) != record.dropout) ++row;
    name("stream/dropout", record.step,
         row < now_.dropout
             ? fmt::format("the draw of row {} expected, that of row {} seen", now_.dropout, row)
             : fmt::format("bits {} expected, {} seen", hex16(bits(now_.dropout)), hex16(record.dropout)));
  }
  for (std::size_t rank = 0; rank < ranks.size() && config_.jitter; ++rank) {
    const uint64_t expected = jitters_[rank].next();
    if (ranks[rank].jitter != expected)
      name("stream/jitter", record.step,
           fmt::format("rank {}: bits {} expected, {} seen", rank, hex16(expected), hex16(ranks[rank].jitter)));
  }
}

void Diagnosis::judge_step(const StepRecord& record) {
  if (record.micro != now_.micro) {
    name(kind::accumulation, record.step,
         fmt::format("{} of {} micro-batches since the last update expected, {} seen", now_.micro, config_.accumulate,
                     record.micro));
    now_.micro = record.micro;
  }
  if (record.scale != now_.loss_scale.scale)
    name(kind::loss_scale, record.step, fmt::format("{} expected, {} seen", now_.loss_scale.scale, record.scale));
  if (!first_step_) return;
  const toy::Normaliser &expected = now_.normaliser, &seen = record.normaliser;
  if (expected.mean != seen.mean)
    name(kind::normalisers, record.step, "mean: " + differing(expected.mean, seen.mean));
  else if (expected.variance != seen.variance)
    name(kind::normalisers, record.step, "variance: " + differing(expected.variance, seen.variance));
  if (record.parameters != now_.parameters)
    name(kind::parameters, record.step, differing(now_.parameters, record.parameters));
}

void Diagnosis::judge_update(const StepRecord& record) {
  const UpdateRecord& update = *record.update;
  const int64_t step = record.step;
  if (update.rows != accumulated_rows_)
    name(kind::accumulation, step,
         fmt::format("the gradient of {} rows expected, of {} seen", accumulated_rows_, update.rows));
  else if (update.total != accumulated_)
    name(kind::accumulation, step, "gradient: " + differing(accumulated_, update.total));
  if (first_update_) {
    const uint64_t expected = now_.noise.next();
    if (update.noise != expected)
      name("stream/noise", step, fmt::format("bits {} expected, {} seen", hex16(expected), hex16(update.noise)));
  }
  judge_rate(step, update);
  if (!update.overflow) {
    judge_direction(step, update);
    toy::average(now_.averaged, update.parameters);
    now_.scheduler.after_update();
  }
  if (update.factor != now_.scheduler.factor()) {
    name(kind::scheduler, step,
         fmt::format("{} of the base rate expected at position {}, {} seen", now_.scheduler.factor(),
                     now_.scheduler.position, update.factor));
  }
  now_.controls.rate = now_.cached_base_rate * update.factor;
  now_.loss_scale.after_update(update.overflow);
  now_.micro = 0;
  accumulated_.assign(accumulated_.size(), 0);
  accumulated_rows_ = 0;
  first_update_ = false;
}

/// The first rate was set before the stop; the later ones the schedule makes from its own copy of the base rate.
void Diagnosis::judge_rate(int64_t step, const UpdateRecord& update) {
  if (update.decay != now_.controls.decay)
    name(kind::control_values, step, fmt::format("decay {} expected, {} seen", now_.controls.decay, update.decay));
  if (update.rate == now_.controls.rate) return;
  if (first_update_) {
    name(kind::control_values, step, fmt::format("rate {} expected, {} seen", now_.controls.rate, update.rate));
    return;
  }
  name(kind::cached_controls, step,
       fmt::format("rate {} expected, {} seen: the schedule has overwritten it from a base rate that is not {}",
                   now_.controls.rate, update.rate, now_.cached_base_rate));
}

/// The update that the recorded gradient gives with the moments and the count as they should be; if that is not what
/// was recorded, with either or both as at the start of a run.
void Diagnosis::judge_direction(int64_t step, const UpdateRecord& update) {
  const std::vector<float> none(first_.size());
  for (const bool moments : {true, false}) {
    for (int64_t count = now_.updates; count >= 0; --count) {
      if (!moments && count != now_.updates && count != 0) continue;
      std::vector<float> first = moments ? first_ : none, second = moments ? second_ : none;
      if (direction_of(update.gradient, first, second, count + 1) != update.direction) continue;
      if (!moments)
        name(kind::moments, step, fmt::format("update {} is that of moments that begin at 0", now_.updates + 1));
      if (count != now_.updates)
        name(kind::optimizer_step, step,
             fmt::format("the bias correction of update {} expected, of update {} seen", now_.updates + 1, count + 1));
      first_ = first;
      second_ = second;
      now_.updates = count + 1;
      return;
    }
  }
}

void Diagnosis::judge_evaluation(int64_t step, const toy::EvaluationRecord& evaluation) {
  if (evaluation.averaged != now_.averaged)
    name(kind::averaged_weights, step, differing(now_.averaged, evaluation.averaged));
  if (evaluation.best_before != now_.patience.best) {
    name(kind::best_metric, step,
         fmt::format("{} expected, {} seen", shown(now_.patience.best), shown(evaluation.best_before)));
    now_.patience.best = evaluation.best_before;
  }
  now_.patience.after_evaluation(evaluation.metric, config_.patience);
  if (evaluation.left != now_.patience.left)
    name(kind::patience, step,
         fmt::format("{} evaluations left expected, {} seen", now_.patience.left, evaluation.left));
  now_.scheduler.after_evaluation(evaluation.metric);
}

}  // namespace lockstep::resume
