#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "harness/base/json.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/plan/config/canonical.h"

// Causes of wrong control values: the learning rate under each hypothesis, recomputed from the configs.

namespace lockstep::causes {
namespace {

struct Rate {
  double expected = 0;
  std::vector<double> actual;      ///< by rank
  std::vector<std::size_t> wrong;  ///< ranks
  double value() const { return actual[wrong.front()]; }
};

constexpr const char* kRate = "learning_rate";

/// The rate of that name. A group of parameters without a rate of its own has the optimizer's.
std::optional<double> rate_in(const StepRecords& rank, const std::string& name) {
  const Record* own = find_record(rank, Phase::control, name);
  if (!own) own = find_record(rank, Phase::control, kRate);
  return own && own->is_scalar ? std::optional(own->value) : std::nullopt;
}

/// The rate of that name if it is what differs; `alike`: on every rank that has a wrong one.
std::optional<Rate> rate_named(const CauseInputs& inputs, const std::string& name, bool alike = true) {
  if (inputs.difference.phase != Phase::control || inputs.difference.divergence.where != name || !inputs.reference ||
      !inputs.cell)
    return std::nullopt;
  const std::optional<double> expected = rate_in(inputs.reference->ranks[0], name);
  if (!expected) return std::nullopt;
  Rate rate;
  rate.expected = *expected;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    const std::optional<double> actual = rate_in(inputs.cell->ranks[rank], name);
    if (!actual) return std::nullopt;
    rate.actual.push_back(*actual);
    if (*actual != *expected) rate.wrong.push_back(rank);
  }
  if (rate.wrong.empty()) return std::nullopt;
  for (const std::size_t rank : rate.wrong)
    if (alike && rate.actual[rank] != rate.value()) return std::nullopt;
  return rate;
}

std::optional<Rate> rate_of(const CauseInputs& inputs) {
  const std::string& where = inputs.difference.divergence.where;
  return rate_named(inputs, where.starts_with("learning_rate/") ? where : std::string(kRate));
}

bool same(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b)); }

std::string on_ranks(const Rate& rate) {
  if (rate.wrong.size() == rate.actual.size()) return "on all ranks";
  return fmt::format("on rank {}", fmt::join(rate.wrong, ", "));
}

/// The step whose scheduled rate the wrong one is, among those given; nothing unless the schedule tells steps
/// apart.
std::optional<int64_t> scheduled_at(const CauseInputs& inputs, const Rate& rate,
                                    const std::vector<int64_t>& steps) {
  if (!inputs.reference_config || inputs.reference_config->schedule == Schedule::constant)
    return std::nullopt;
  const RunConfig& config = *inputs.reference_config;
  if (!same(learning_rate(config, inputs.difference.divergence.step), rate.expected)) return std::nullopt;
  for (const int64_t step : steps) {
    for (const int64_t clipped : {step, std::clamp<int64_t>(step, 0, config.steps)})
      if (same(learning_rate(config, clipped), rate.value())) return step;
  }
  return std::nullopt;
}

/// A schedule that multiplies the rate by one factor at each multiple of some number of steps.
struct StepDecay {
  int64_t every = 0;
  double factor = 1;
};

/// The decay that recorded rates follow, each of them: two drops or more must show it.
std::optional<StepDecay> decay_of(const std::map<int64_t, double>& rates) {
  std::vector<int64_t> drops;
  StepDecay decay;
  for (auto at = rates.begin(); at != rates.end(); ++at) {
    const auto next = std::next(at);
    if (next == rates.end()) break;
    if (next->first != at->first + 1 || at->second == 0) return std::nullopt;
    if (same(at->second, next->second)) continue;
    const double factor = next->second / at->second;
    if (!drops.empty() && !same(factor, decay.factor)) return std::nullopt;
    decay.factor = factor;
    drops.push_back(next->first);
  }
  if (drops.size() < 2) return std::nullopt;
  decay.every = drops[1] - drops[0];
  for (std::size_t k = 0; k < drops.size(); ++k)
    if (drops[k] != drops[0] + static_cast<int64_t>(k) * decay.every) return std::nullopt;
  // No drop may have been missed before the first one that was seen.
  const bool of_multiples = drops[0] % decay.every == 0, seen_before = drops[0] - rates.begin()->first <= decay.every;
  return of_multiples && seen_before ? std::optional(decay) : std::nullopt;
}

/// The reference's rate at a step: as it was recorded, or as its decay continues.
std::optional<double> reference_rate(const CauseInputs& inputs, const std::optional<StepDecay>& decay, int64_t step) {
  const auto recorded = inputs.reference_rates.find(step);
  if (recorded != inputs.reference_rates.end()) return recorded->second;
  if (!decay || inputs.reference_rates.empty()) return std::nullopt;
  const auto& [last, rate] = *inputs.reference_rates.rbegin();
  if (step < last) return std::nullopt;
  return rate * std::pow(decay->factor, static_cast<double>(step / decay->every - last / decay->every));
}

/// Of runs without a config: is the cell's rate at each step the reference's at the step that `other` gives, as far as that is
/// known: recorded, or as `decay` continues? Three steps with rates of their own must show it.
bool follows_other_steps(const CauseInputs& inputs, const std::optional<StepDecay>& decay, const std::function<int64_t(int64_t)>& other) {
  if (inputs.reference_config || inputs.cell_config) return false;
  std::set<double> seen;
  for (const auto& [step, rate] : inputs.cell_rates) {
    const auto expected = reference_rate(inputs, decay, other(step));
    if (!expected) continue;
    if (!same(rate, *expected)) return false;
    seen.insert(rate);
  }
  return seen.size() >= 3;
}

/// A schedule that each rank advances, or one that is some steps ahead or behind: at this step, by the config; or at
/// every step that is known, by the reference's rates.
template <bool per_rank>
Answer at_other_steps(const CauseInputs& inputs, const Rate& rate) {
  const int64_t world = world_size_of(inputs), step = inputs.difference.divergence.step;
  if (per_rank && world < 2) return {};
  constexpr int64_t kMostShift = 10;
  std::vector<int64_t> steps = {step * world, step * world + world - 1, (step + 1) * world};
  if (!per_rank) steps.clear();
  for (int64_t shift = 1; !per_rank && shift <= kMostShift; ++shift) {
    steps.push_back(step + shift);
    if (step >= shift) steps.push_back(step - shift);
  }
  if (const auto found = scheduled_at(inputs, rate, steps); found && *found != step) {
    // A shift by one step has no other explanation; a larger one may also be a schedule stepped by every rank.
    const double strength = per_rank ? kExact : std::abs(*found - step) == 1 ? 0.95 : 0.85;
    return told(strength, "at step {} the rate is {} {}, the schedule's value at step {}{}; expected {}", step,
                exact_number(rate.value()), on_ranks(rate), *found,
                per_rank ? fmt::format(", as if each of {} ranks advanced it", world) : "",
                exact_number(rate.expected));
  }
  if (per_rank) {
    // As many micro-steps as ranks: it may follow either.
    if (inputs.cell_facts.accumulation == world) return {};
    const std::optional<StepDecay> decay = decay_of(inputs.reference_rates);
    for (const int64_t behind : {int64_t{0}, world - 1}) {
      if (follows_other_steps(inputs, decay, [=](int64_t at) { return at * world + behind; }))
        return told("at each step k the rate is the reference's at step {} k{}, as if each of {} ranks advanced it",
                    world, behind == 0 ? "" : fmt::format(" + {}", behind), world);
    }
    return {};
  }
  for (int64_t shift = -kMostShift; shift <= kMostShift; ++shift) {
    // A decay that is shifted looks as one that is scaled.
    if (shift != 0 && follows_other_steps(inputs, std::nullopt, [=](int64_t at) { return at + shift; }))
      return told("from step {} on the rate is the reference's of {} {}", step, counted(std::abs(shift), "step"),
                  shift > 0 ? "later" : "earlier");
  }
  return {};
}

template <bool root>
Answer rate_scaled(const CauseInputs& inputs, const Rate& rate) {
  const int world = world_size_of(inputs);
  // Runs whose headers declare two rates follow what they declare.
  const double declared = inputs.reference_facts.declared_rate, own = inputs.cell_facts.declared_rate;
  if (world < 2 || rate.expected == 0 || (declared > 0 && own > 0 && declared != own)) return {};
  const double factor = root ? std::sqrt(world) : world;
  // Twice the rate in two runs of as many ranks is a rate of somebody's choice as well.
  if (factor == 2 && inputs.reference && static_cast<int>(inputs.reference->ranks.size()) == world) return {};
  if (!same(rate.value(), factor * rate.expected) || rate.wrong.size() != rate.actual.size()) return {};
  // A schedule of another length, or of another loss, has this factor at some steps alone.
  for (const auto& [step, expected] : inputs.reference_rates) {
    const auto own = inputs.cell_rates.find(step);
    if (own != inputs.cell_rates.end() && !same(own->second, factor * expected)) return {};
  }
  return told("the rate is {} = {} times {} {}", exact_number(rate.value()),
              fmt::format(root ? "sqrt({})" : "{}", world), exact_number(rate.expected), on_ranks(rate));
}

/// Of the optimizer, or of a group of parameters that has, or should have, a rate of its own.
Answer rate_differs(const CauseInputs& inputs) {
  constexpr std::string_view kOfGroup = "learning_rate/";
  const std::string& where = inputs.difference.divergence.where;
  const bool of_group = where.starts_with(kOfGroup);
  const auto rate = of_group || where == kRate ? rate_named(inputs, where, false) : std::nullopt;
  if (!rate && of_group)
    return told("{} has a rate of its own in one of the runs alone: expected {}, found {}",
                where.substr(kOfGroup.size()), inputs.difference.divergence.expected,
                inputs.difference.divergence.actual);
  if (!rate) return {};
  const std::string expected = exact_number(rate->expected);
  if (!rate_named(inputs, where))
    return told(kFits,
                "each rank has a rate of its own, {:.6g}, where the reference has {}: what it follows is the rank's "
                "own",
                fmt::join(rate->actual, ", "), expected);
  const double factor = rate->expected == 0 ? 0 : rate->value() / rate->expected;
  return told("the rate{} is {} {}, expected {}: {} times that",
              of_group ? fmt::format(" of the group of {}", where.substr(kOfGroup.size())) : "",
              exact_number(rate->value()), on_ranks(*rate), expected, factor_text(factor, world_size_of(inputs)));
}

Answer schedules_differ(const CauseInputs& inputs) {
  const Divergence& it = inputs.difference.divergence;
  if (!it.where.starts_with("schedule/")) return {};
  return told(kExact, "{}: {}", it.where, expected_found(it.expected, it.actual));
}

Answer skip_decided_alone(const CauseInputs& inputs) {
  if (inputs.difference.divergence.where != "skipped") return {};
  std::vector<std::size_t> skipping, others;
  bool recorded = false;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    // A tracer may say it of the ranks alone that leave their update out.
    const Record* record = find_record(inputs.cell->ranks[rank], Phase::control, "skipped");
    recorded = recorded || record;
    (record && record->value != 0 ? skipping : others).push_back(rank);
  }
  if (!recorded) return {};
  if (skipping.empty()) {
    // Nobody leaves it out, although the reference does, and a rank's own loss is no number: another's was asked.
    const auto without = ranks_where(others.size(), [&](std::size_t rank) {
      const Record* loss = find_record(inputs.cell->ranks[rank], Phase::loss, "loss");
      return loss && !std::isfinite(loss->value);
    });
    if (without.empty() || without.size() == others.size()) return {};
    return told(kStrong,
                "the reference leaves out the update of step {}; here the loss of rank {} is not finite, and the "
                "decision followed other ranks' losses",
                inputs.difference.divergence.step, fmt::join(without, ", "));
  }
  if (others.empty()) return {};
  return of_rank(told(kExact, "rank {} leaves out the update of step {}, and rank {} makes it",
                      fmt::join(skipping, ", "), inputs.difference.divergence.step, fmt::join(others, ", ")),
                 skipping);
}

template <auto rule>
constexpr Rule of_rate = given<rate_of, rule>;

}  // namespace

std::span<const Hypothesis> rate_hypotheses() {
  static constexpr Hypothesis kTable[] = {
      {"schedules-differ", kInControl, kNothing, kExact, schedules_differ},
      {"skip-decided-alone", kInControl, kRuns, kExact, skip_decided_alone},
      {"scheduler-stepped-per-rank", kInControl, kRuns, kExact, of_rate<at_other_steps<true>>},
      {"schedule-shifted", kInControl, kRuns, kExact, of_rate<at_other_steps<false>>},
      {"rate-scaled-linear", kInControl, kRuns, 0.96, of_rate<rate_scaled<false>>, "lr_rule"},
      {"rate-scaled-sqrt", kInControl, kRuns, 0.96, of_rate<rate_scaled<true>>, "lr_rule"},
      {"rate-differs", kInControl, kRuns, kGeneral, rate_differs, "parameters.rate_factor"},
  };
  return kTable;
}

// Causes of wrong random streams: keys are recomputed under each hypothesis and compared with the recorded
// fingerprints.

namespace {

/// One stream of one rank at one step.
struct Use {
  uint64_t hash = 0;
  double draws = 0;
  std::vector<int64_t> ids;  ///< of the rank's samples
};

std::vector<Use> uses_of(const std::optional<StepOfRun>& step, const std::string& stream) {
  std::vector<Use> uses;
  if (!step) return uses;
  for (const StepRecords& rank : step->ranks) {
    Use use;  // A rank without the stream drew nothing from it.
    for (const Record& record : rank.records) {
      if (record.phase == Phase::samples) use.ids = record.ids;
      if (record.phase != Phase::random || record.name != stream) continue;
      use.hash = record.stats.hash;
      use.draws = record.value;
    }
    uses.push_back(std::move(use));
  }
  return uses;
}

/// The streams of the cell and the reference, and the ranks whose stream is not the one that their samples
/// key.
struct Streams {
  std::string name;
  std::vector<Use> cell, reference, before;
  int64_t step = 0;
};

std::optional<Streams> streams_of(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::random) return std::nullopt;
  Streams streams;
  streams.name = inputs.difference.divergence.where;
  streams.step = inputs.difference.divergence.step;
  streams.cell = uses_of(inputs.cell, streams.name);
  streams.reference = uses_of(inputs.reference, streams.name);
  streams.before = uses_of(inputs.cell_before, streams.name);
  if (streams.cell.empty() || streams.reference.empty()) return std::nullopt;
  return streams;
}

template <typename T>
T sum_of(const std::vector<Use>& uses, T Use::*what) {
  T sum{};
  for (const Use& use : uses) sum += use.*what;
  return sum;
}

/// What keys a stream: which mode, at which step, for which rank.
struct Keying {
  RankSeed mode = RankSeed::keyed;
  int64_t seed = 0, step = 0;
  int rank = 0;
};

uint64_t fingerprint(uint32_t purpose, const Keying& keying, const std::vector<int64_t>& ids) {
  const uint64_t base = stream_base(keying.mode, keying.seed, keying.rank);
  std::vector<uint64_t> keys;
  for (std::size_t row = 0; row < ids.size(); ++row) {
    const auto who =
        static_cast<uint64_t>(keying.mode == RankSeed::keyed ? ids[row] : static_cast<int64_t>(row));
    keys.push_back(stream_row_key(base, purpose, keying.step, who));
  }
  return stream_fingerprint(keys);
}

uint64_t fingerprint_by_sample(uint32_t purpose, const RunConfig& config, int64_t step,
                               const std::vector<int64_t>& ids) {
  return fingerprint(purpose, {RankSeed::keyed, stream_seed(config), step, 0}, ids);
}

/// The purpose under which keys by sample give the reference's fingerprint; nothing if none does.
std::optional<uint32_t> purpose_of(const CauseInputs& inputs, const Streams& streams) {
  if (!inputs.reference_config || !inputs.cell_config) return std::nullopt;
  for (uint32_t purpose = 1; purpose <= 16; ++purpose) {
    uint64_t sum = 0;
    for (const Use& use : streams.reference)
      sum += fingerprint_by_sample(purpose, *inputs.reference_config, streams.step, use.ids);
    if (sum == sum_of(streams.reference, &Use::hash)) return purpose;
  }
  return std::nullopt;
}

/// Ranks whose fingerprint is not the one keyed by their samples; all if that is not known.
std::vector<std::size_t> wrong_ranks(const CauseInputs& inputs, const Streams& streams) {
  const auto purpose = purpose_of(inputs, streams);
  return ranks_where(streams.cell.size(), [&](std::size_t rank) {
    const Use& use = streams.cell[rank];
    return !purpose || fingerprint_by_sample(*purpose, *inputs.cell_config, streams.step, use.ids) != use.hash;
  });
}

Answer same_stream_on_all_ranks(const CauseInputs& inputs, const Streams& streams) {
  if (is_of_a_generator(inputs.difference.divergence.where) || streams.cell.size() < 2) return {};
  for (const Use& use : streams.cell) {
    if (use.hash != streams.cell[0].hash || use.ids.empty() || use.draws == 0) return {};
  }
  return told("{}: all {} ranks drew from the stream {}", streams.name, streams.cell.size(),
              hex16(streams.cell[0].hash));
}

Answer stream_keyed_by_rank(const CauseInputs& inputs, const Streams& streams) {
  if (streams.cell.size() < 2) return {};
  const auto purpose = purpose_of(inputs, streams);
  if (!purpose || sum_of(streams.cell, &Use::draws) != sum_of(streams.reference, &Use::draws)) return {};
  for (const std::size_t rank : wrong_ranks(inputs, streams)) {
    const Keying keying{RankSeed::plus_rank, stream_seed(*inputs.cell_config), streams.step, static_cast<int>(rank)};
    if (fingerprint(*purpose, keying, streams.cell[rank].ids) != streams.cell[rank].hash) return {};
  }
  return told("{}: the keys of the recorded streams are made of seed {} + rank and the row's position, not of the "
              "samples",
              streams.name, inputs.cell_config->seed);
}

/// A stream from which a second pass drew: the forward pass was right, and the loss with it, and the gradients are not.
Answer masks_drawn_again(const CauseInputs& inputs) {
  constexpr double kSameLoss = 1e-5, kOtherGradient = 1e-4;
  const std::string& stream = inputs.difference.divergence.where;
  const std::vector<Use> expected = uses_of(inputs.reference, stream), actual = uses_of(inputs.cell, stream);
  const double before = sum_of(expected, &Use::draws), now = sum_of(actual, &Use::draws);
  if (!(before > 0) || !(now > before) || now > 2 * before) return {};
  const auto loss_a = mean_loss(*inputs.reference), loss_b = mean_loss(*inputs.cell);
  const double size_a = norm_of(inputs.reference->ranks[0], Phase::reduced_gradients);
  const double size_b = norm_of(inputs.cell->ranks[0], Phase::reduced_gradients);
  if (!loss_a || !loss_b || !(size_a > 0) || !(size_b > 0)) return {};
  if (std::abs(*loss_a - *loss_b) > kSameLoss * std::max(1.0, std::abs(*loss_a)) ||
      std::abs(size_a - size_b) <= kOtherGradient * size_a)
    return {};
  return told("{}: {} draws where the reference takes {}; the loss is the same ({}), and the gradients are not (norm "
              "{} and {}): numbers were drawn again behind the forward pass",
              stream, exact_number(now), exact_number(before), short_number(*loss_b), short_number(size_b),
              short_number(size_a));
}

/// A generator that the forward pass draws from begins in a state that it has had at an earlier step, and has left since, on every rank: the
/// process was seeded anew within the step.
Answer seeded_anew_within_step(const CauseInputs& inputs) {
  const int64_t step = inputs.difference.divergence.step;
  const auto now = inputs.cell_generators.find(step);
  if (!is_of_a_generator(inputs.difference.divergence.where) || now == inputs.cell_generators.end()) return {};
  for (const auto& [stream, states] : now->second) {
    if (stream == inputs.difference.divergence.where || states.empty()) continue;
    const std::vector<Use> uses = uses_of(inputs.cell, stream);
    if (uses.size() != states.size() || !std::ranges::all_of(uses, [](const Use& use) { return use.draws > 0; })) continue;
    bool left_since = false;
    for (auto earlier = std::make_reverse_iterator(now); earlier != inputs.cell_generators.rend(); ++earlier) {
      const auto then = earlier->second.find(stream);
      if (then == earlier->second.end()) continue;
      if (then->second != states) {
        left_since = true;
      } else if (left_since) {
        return told("{}: every rank begins the forward pass of step {} in the state of step {}, which it had left "
                    "since; from {} it takes another number of draws",
                    stream, step, earlier->first, inputs.difference.divergence.where);
      } else {
        break;
      }
    }
  }
  return {};
}

template <bool extra>
Answer draws_differ(const CauseInputs& inputs, const Streams& streams) {
  // Where a generator is put back, the count of its draws is that of the states between.
  if ((inputs.reference && masks_drawn_again(inputs)) || seeded_anew_within_step(inputs)) return {};
  const double expected = sum_of(streams.reference, &Use::draws), actual = sum_of(streams.cell, &Use::draws);
  // A stream that the reference never draws from is another method, not a draw too many.
  if (expected == actual || (actual > expected) != extra || expected == 0) return {};
  // Draws for its rows: of ranks that do not take the reference's number a row.
  double rows = 0;
  for (const Use& use : streams.reference) rows += static_cast<double>(use.ids.size());
  const auto ranks = ranks_where(streams.cell.size(), [&](std::size_t rank) {
    const Use& own = streams.cell[rank];
    return rows > 0 && own.draws != expected / rows * static_cast<double>(own.ids.size());
  });
  return told("{}: {} draws on all ranks together, but {} in the reference{}", streams.name, exact_number(actual),
              exact_number(expected),
              ranks.empty() ? ""
                            : fmt::format("; rank {} does not take the reference's number for its rows",
                                          fmt::join(ranks, ", ")));
}

/// The earlier step whose keys give a rank's fingerprint, or -1.
int64_t old_step_of(const CauseInputs& inputs, const Streams& streams, std::size_t rank) {
  const Use& use = streams.cell[rank];
  if (const auto purpose = purpose_of(inputs, streams)) {
    for (int64_t step = streams.step - 1; step >= 0; --step)
      if (fingerprint_by_sample(*purpose, *inputs.cell_config, step, use.ids) == use.hash) return step;
  }
  const bool repeats = rank < streams.before.size() && streams.before[rank].hash == use.hash;
  return repeats && !use.ids.empty() ? streams.step - 1 : -1;
}

Answer stream_not_advanced(const CauseInputs& inputs, const Streams& streams) {
  if (is_of_a_generator(inputs.difference.divergence.where)) return {};
  const std::vector<std::size_t> wrong = wrong_ranks(inputs, streams);
  int64_t old = -1;
  std::vector<std::size_t> stuck;
  for (const std::size_t rank : wrong) {
    const int64_t step = old_step_of(inputs, streams, rank);
    if (step < 0) continue;
    old = step;
    stuck.push_back(rank);
  }
  // Without keys to recompute, ranks that are right cannot be told from the others.
  if (stuck.empty() || (purpose_of(inputs, streams) && stuck.size() != wrong.size())) return {};
  return told("{}: rank {} drew from the stream of step {}", streams.name, fmt::join(stuck, ", "), old);
}

/// A generator that begins a step as it began an earlier one, on every rank that the reference differs from.
Answer generator_not_advanced(const CauseInputs& inputs) {
  const std::string& stream = inputs.difference.divergence.where;
  const int64_t step = inputs.difference.divergence.step;
  const auto now = inputs.cell_generators.find(step);
  if (!is_of_a_generator(stream) || now == inputs.cell_generators.end()) return {};
  const auto states = now->second.find(stream);
  if (states == now->second.end()) return {};
  for (auto earlier = std::make_reverse_iterator(now); earlier != inputs.cell_generators.rend(); ++earlier) {
    const auto then = earlier->second.find(stream);
    if (earlier->first < 0 || then == earlier->second.end()) continue;
    std::vector<int> stuck;
    for (const auto& [rank, state] : states->second) {
      const auto old = then->second.find(rank);
      if (old != then->second.end() && old->second == state) stuck.push_back(rank);
    }
    const bool of_all = stuck.size() == states->second.size(), of_told = std::ranges::find(stuck, inputs.difference.divergence.rank) != stuck.end();
    if (!of_all && !of_told) continue;
    return told("{}: rank {} begins step {} in the state of step {}", stream, fmt::join(stuck, ", "), step,
                earlier->first);
  }
  return {};
}

/// Ranks whose generators are in one state, where each should have its own.
Answer same_generator_on_all_ranks(const CauseInputs& inputs) {
  const Divergence& it = inputs.difference.divergence;
  const auto now = inputs.cell_generators.find(it.step);
  if (!is_of_a_generator(it.where) || now == inputs.cell_generators.end()) return {};
  const auto found = now->second.find(it.where);
  if (found == now->second.end() || found->second.size() < 2) return {};
  const uint64_t first = found->second.begin()->second;
  if (!std::ranges::all_of(found->second, [&](const auto& each) { return each.second == first; })) return {};
  std::set<uint64_t> in_reference;
  for (const Use& use : uses_of(inputs.reference, it.where)) in_reference.insert(use.hash);
  if (declared_state(*inputs.cell, it.where) != "rank" && in_reference.size() < 2) return {};
  return told(kExact, "{}: all {} ranks are in the state {}", it.where, found->second.size(), hex16(first));
}

Answer dropout_not_replayed(const Streams& streams) {
  if (streams.name.find("replay") == std::string::npos) return {};
  return told("{}: the second pass drew from {}, but the first from {}", streams.name,
              hex16(sum_of(streams.cell, &Use::hash)), hex16(sum_of(streams.reference, &Use::hash)));
}

Answer random_stream_differs(const CauseInputs& inputs, const Streams& streams) {
  std::string where = "on all ranks together";
  const std::vector<std::size_t> wrong = wrong_ranks(inputs, streams);
  if (!wrong.empty() && wrong.size() < streams.cell.size()) {
    where = fmt::format("on rank {}", fmt::join(wrong, ", "));
  }
  const double expected = sum_of(streams.reference, &Use::draws), actual = sum_of(streams.cell, &Use::draws);
  const std::string draws = expected == actual ? "equally many draws"
                                               : fmt::format("{} draws where it took {}", exact_number(actual), exact_number(expected));
  return told("{}: fingerprint {} where the reference has {}, {}, with {}", streams.name,
              hex16(sum_of(streams.cell, &Use::hash)), hex16(sum_of(streams.reference, &Use::hash)), where, draws);
}

/// A forward pass that draws nothing on any rank, where it drew at earlier steps and the reference's draws: dropout is off.
Answer forward_draws_missing(const CauseInputs& inputs) {
  if (is_exact(inputs.difference.phase)) return {};
  const int64_t step = inputs.difference.divergence.step;
  for (const Record* record : records_of(inputs.reference->ranks[0], Phase::random)) {
    if (!is_of_a_generator(record->name) || name_of_generator(record->name) != "model") continue;
    const double expected = sum_of(uses_of(inputs.reference, record->name), &Use::draws),
                 actual = sum_of(uses_of(inputs.cell, record->name), &Use::draws);
    const bool drew_before = std::ranges::any_of(inputs.cell_generators, [&](const auto& each) { return each.first < step && each.second.contains(record->name); });
    if (!(expected > 0) || actual > 0 || !drew_before) continue;
    return told("{}: the forward pass of step {} takes no number on any rank, where the reference's takes {} and the "
                "run's own took some before",
                record->name, step, exact_number(expected));
  }
  return {};
}

template <auto rule>
constexpr Rule of_streams = given<streams_of, rule>;

}  // namespace

std::span<const Hypothesis> random_hypotheses() {
  static constexpr Hypothesis kTable[] = {
      {"same-stream-on-all-ranks", kInRandom, kRanks, kExact, of_streams<same_stream_on_all_ranks>, "rank_seed"},
      {"same-stream-on-all-ranks", kInRandom, kRanks, kExact, same_generator_on_all_ranks, "rank_seed"},
      {"stream-keyed-by-rank", kInRandom, kRanks | kConfigs, kExact, of_streams<stream_keyed_by_rank>, "rank_seed"},
      {"masks-drawn-again", kInRandom, kRuns, kExact, masks_drawn_again},
      {"extra-draws", kInRandom, kRuns, kExact, of_streams<draws_differ<true>>},
      {"draws-missing", kInRandom, kRuns, kExact, of_streams<draws_differ<false>>},
      {"draws-missing", kInexactPhases, kRuns, kExact, forward_draws_missing},
      {"stream-not-advanced", kInRandom, kRuns, kExact, of_streams<stream_not_advanced>},
      {"stream-not-advanced", kInRandom, kRuns, kExact, generator_not_advanced},
      {"stream-not-advanced", kInRandom, kRuns, kExact, seeded_anew_within_step},
      {"dropout-not-replayed", kInRandom, kRuns, kFits, of_streams<dropout_not_replayed>},
      {"random-stream-differs", kInRandom, kRuns, kGeneral, of_streams<random_stream_differs>},
  };
  return kTable;
}

}  // namespace lockstep::causes

namespace lockstep {

// Causes of runs that did not finish: what the launcher saw, and what the header exchange said before any
// payload moved.

static std::string told(const Failure& failure) {
  std::string text = failure.rank < 0 ? "the run" : fmt::format("rank {}", failure.rank);
  if (failure.step >= 0) text += fmt::format(" at step {}", failure.step);
  if (!failure.operation.empty()) text += fmt::format(" in {}", failure.operation);
  return text + (failure.message.empty() ? "" : ": " + failure.message);
}

/// Of a rank that threw: the words of gather_rows' header check, or of a row in exact arithmetic, before anything was summed.
static const char* thrown_code(const std::string& message) {
  constexpr std::pair<const char*, const char*> kHeaders[] = {{" is at step ", "step-differs"},
                                                              {" calls another collective", "collective-order"},
                                                              {" with rows of shape ", "shapes-differ"},
                                                              {" tensors, not ", "shapes-differ"},
                                                              {" as ", "dtype-differs"}};
  const auto says = [&](std::string_view words) { return message.find(words) != std::string::npos; };
  for (const auto& [words, code] : kHeaders)
    if (says("seen from rank") && says(words)) return code;
  return says(kRowNotFinite) ? "non-finite" : "rank-threw";
}

std::optional<Cause> name_failure_cause(const Failure& failure, int ranks) {
  const std::map<FailureKind, std::string> codes = {{FailureKind::threw, thrown_code(failure.message)},
                                                    {FailureKind::died, "rank-died"},
                                                    {FailureKind::hung, "rank-hung"},
                                                    {FailureKind::slow, "rank-slow"},
                                                    {FailureKind::unreadable, "file-damaged"}};
  if (!codes.contains(failure.kind)) return std::nullopt;
  const std::string& code = codes.at(failure.kind);
  const double confidence = code.starts_with("rank-") || code == "file-damaged" ? 0.9 : causes::kExact;
  Cause cause = causes::made(code, confidence, told(failure));
  if (const CausePage* page = find_cause_page(code)) cause.remedy = page->remedy;
  if (code == "rank-hung" && ranks == 1)
    cause.remedy = "Look at the named operation: a lock, or an input that does not arrive. The run has one process, so no other rank blocks it.";
  return cause;
}

std::optional<Cause> name_cause_of_draws(const std::string& reference, const std::string& run, int64_t step,
                                         std::string_view code) {
  if (!code.empty() && code.find("stream") == std::string_view::npos) return std::nullopt;
  StepPairs pairs(reference, run);
  std::optional<Cause> found;
  bool agreed = false;
  while (pairs.next()) {
    const StepOfRun &a = pairs.step_a(), &b = pairs.step_b();
    if (a.step < 0 || a.step > step) continue;
    agreed = agreed || a.step < step;
    for (const Record* wanted : records_of(a.ranks[0], Phase::random)) {
      if (!is_of_a_generator(wanted->name) || name_of_generator(wanted->name) == "model") continue;
      double expected = 0, actual = 0;
      bool alike = true, apart = true;
      for (std::size_t rank = 0; rank < b.ranks.size(); ++rank) {
        const StepRecords& of_a = a.ranks[a.ranks.size() == b.ranks.size() ? rank : 0];
        const Record *there = find_record(of_a, Phase::random, wanted->name),
                     *here = find_record(b.ranks[rank], Phase::random, wanted->name);
        alike = alike && there && here && there->stats.hash == here->stats.hash;
        apart = apart && there && here && there->stats.hash != here->stats.hash;
        if (alike) expected = there->value, actual = here->value;
      }
      if (a.step == step && found && apart) return found;
      if (a.step < step && !found && alike && expected > 0 && actual > 0 && expected != actual)
        found = causes::made(actual > expected ? "extra-draws" : "draws-missing", causes::kExact,
                             "{}: {} draws on each rank at step {}, {} in the reference from the same state",
                             wanted->name, exact_number(actual), a.step, exact_number(expected));
    }
  }
  const bool keyed = agreed && code == "stream-keyed-by-rank";
  return keyed ? std::optional(causes::made("random-stream-differs", causes::kGeneral, "The steps before draw alike."))
               : std::nullopt;
}

}  // namespace lockstep
