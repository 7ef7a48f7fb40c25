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

#include "harness/verdict/causes/rules.h"
#include "harness/verdict/compare/step_pairs.h"
#include "harness/verdict/config/canonical.h"

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

/// The rate of that name if it is what differs, alike on every rank that has a wrong one.
std::optional<Rate> rate_named(const CauseInputs& inputs, const std::string& name) {
  if (inputs.difference.phase != Phase::control || inputs.difference.divergence.where != name || !inputs.reference || !inputs.cell) {
    return std::nullopt;
  }
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
  for (const std::size_t rank : rate.wrong) {
    if (rate.actual[rank] != rate.value()) return std::nullopt;
  }
  return rate;
}

std::optional<Rate> rate_of(const CauseInputs& inputs) { return rate_named(inputs, kRate); }

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
    for (const int64_t clipped : {step, std::clamp<int64_t>(step, 0, config.steps)}) {
      if (same(learning_rate(config, clipped), rate.value())) return step;
    }
  }
  return std::nullopt;
}

std::optional<Cause> scheduler_stepped_per_rank(const CauseInputs& inputs) {
  const auto rate = rate_of(inputs);
  const int64_t world = world_size_of(inputs), step = inputs.difference.divergence.step;
  if (!rate || world < 2) return std::nullopt;
  const auto found =
      scheduled_at(inputs, *rate, {step * world, step * world + world - 1, (step + 1) * world});
  if (!found || *found == step) return std::nullopt;
  return made(
      "scheduler-stepped-per-rank", kExact,
      fmt::format("at step {} the rate is {} {}, the schedule's value at step {}, as if each of {} ranks "
                  "advanced it; expected {}",
                  step, exact_number(rate->value()), on_ranks(*rate), *found, world,
                  exact_number(rate->expected)));
}

std::optional<Cause> schedule_shifted(const CauseInputs& inputs) {
  const auto rate = rate_of(inputs);
  if (!rate) return std::nullopt;
  const int64_t step = inputs.difference.divergence.step;
  std::vector<int64_t> near;
  for (int64_t shift = 1; shift <= 10; ++shift) {
    near.push_back(step + shift);
    if (step >= shift) near.push_back(step - shift);
  }
  const auto found = scheduled_at(inputs, *rate, near);
  if (!found) return std::nullopt;
  // A shift by one step has no other explanation; a larger one may also be a schedule stepped by every rank,
  // which another rule then names.
  const double confidence = std::abs(*found - step) == 1 ? 0.95 : 0.85;
  return made(
      "schedule-shifted", confidence,
      fmt::format("at step {} the rate is {} {}, the schedule's value at step {}; expected {}", step,
                  exact_number(rate->value()), on_ranks(*rate), *found, exact_number(rate->expected)));
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
  for (std::size_t k = 0; k < drops.size(); ++k) {
    if (drops[k] != drops[0] + static_cast<int64_t>(k) * decay.every) return std::nullopt;
  }
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

std::optional<Cause> stepped_per_rank_by_history(const CauseInputs& inputs) {
  const auto rate = rate_of(inputs);
  const int64_t world = world_size_of(inputs);
  if (!rate || world < 2) return std::nullopt;
  const std::optional<StepDecay> decay = decay_of(inputs.reference_rates);
  for (const int64_t behind : {int64_t{0}, world - 1}) {
    if (!follows_other_steps(inputs, decay, [=](int64_t step) { return step * world + behind; })) continue;
    return made("scheduler-stepped-per-rank", kExact,
                fmt::format("at each step k the rate is the reference's at step {} k{}, as if each of {} ranks advanced it",
                            world, behind == 0 ? "" : fmt::format(" + {}", behind), world));
  }
  return std::nullopt;
}

std::optional<Cause> shifted_by_history(const CauseInputs& inputs) {
  const auto rate = rate_of(inputs);
  if (!rate) return std::nullopt;
  for (int64_t shift = 1; shift <= 10; ++shift) {
    for (const int64_t signed_shift : {shift, -shift}) {
      // A decay that is shifted looks as one that is scaled.
      if (!follows_other_steps(inputs, std::nullopt, [=](int64_t step) { return step + signed_shift; })) continue;
      return made("schedule-shifted", kExact,
                  fmt::format("from step {} on the rate is the reference's of {} {}", inputs.difference.divergence.step,
                              counted(shift, "step"), signed_shift > 0 ? "later" : "earlier"));
    }
  }
  return std::nullopt;
}

std::optional<Cause> rate_scaled(const CauseInputs& inputs, const char* code, double factor,
                                 const std::string& what) {
  const auto rate = rate_of(inputs);
  if (!rate || world_size_of(inputs) < 2 || rate->expected == 0) return std::nullopt;
  // Runs whose headers declare two rates follow what they declare.
  const double declared = inputs.reference_facts.declared_rate, own = inputs.cell_facts.declared_rate;
  if (declared > 0 && own > 0 && declared != own) return std::nullopt;
  if (!same(rate->value(), factor * rate->expected)) return std::nullopt;
  return made(code, 0.96,
              fmt::format("the rate is {} = {} times {} {}", exact_number(rate->value()), what,
                          exact_number(rate->expected), on_ranks(*rate)));
}

std::optional<Cause> rate_scaled_linear(const CauseInputs& inputs) {
  const int world = world_size_of(inputs);
  return rate_scaled(inputs, "rate-scaled-linear", world, std::to_string(world));
}

std::optional<Cause> rate_scaled_sqrt(const CauseInputs& inputs) {
  const int world = world_size_of(inputs);
  return rate_scaled(inputs, "rate-scaled-sqrt", std::sqrt(world), fmt::format("sqrt({})", world));
}

std::optional<Cause> rate_differs(const CauseInputs& inputs) {
  const auto rate = rate_of(inputs);
  if (!rate) return std::nullopt;
  const double factor = rate->expected == 0 ? 0 : rate->value() / rate->expected;
  return made(
      "rate-differs", kGeneral,
      fmt::format("the rate is {} {}, {} times the expected {}", exact_number(rate->value()), on_ranks(*rate),
                  factor_text(factor, world_size_of(inputs)), exact_number(rate->expected)));
}

/// Of a group of parameters that has, or should have, a rate of its own.
std::optional<Cause> rate_of_group_differs(const CauseInputs& inputs) {
  constexpr std::string_view kOfGroup = "learning_rate/";
  const std::string& where = inputs.difference.divergence.where;
  if (!where.starts_with(kOfGroup)) return std::nullopt;
  const auto rate = rate_named(inputs, where);
  if (!rate) return std::nullopt;
  return made("rate-differs", kGeneral,
              fmt::format("the rate of the group of {} is {} {}, expected {}", where.substr(kOfGroup.size()), exact_number(rate->value()), on_ranks(*rate),
                          exact_number(rate->expected)));
}

std::optional<Cause> schedules_differ(const CauseInputs& inputs) {
  const Divergence& told = inputs.difference.divergence;
  if (inputs.difference.phase != Phase::control || !told.where.starts_with("schedule/")) return std::nullopt;
  return made("schedules-differ", kExact, fmt::format("{}: {}", told.where, expected_found(told.expected, told.actual)));
}

std::optional<Cause> skip_decided_alone(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::control || inputs.difference.divergence.where != "skipped" || !inputs.cell) return std::nullopt;
  std::vector<std::size_t> skipping, others;
  bool recorded = false;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    // A tracer may say it of the ranks alone that leave their update out.
    const Record* record = find_record(inputs.cell->ranks[rank], Phase::control, "skipped");
    recorded = recorded || record;
    (record && record->value != 0 ? skipping : others).push_back(rank);
  }
  if (!recorded) return std::nullopt;
  if (skipping.empty()) {
    // Nobody leaves it out, although the reference does, and a rank's own loss is no number: another's was asked.
    std::vector<std::size_t> without;
    for (const std::size_t rank : others) {
      const Record* loss = find_record(inputs.cell->ranks[rank], Phase::loss, "loss");
      if (loss && !std::isfinite(loss->value)) without.push_back(rank);
    }
    if (without.empty() || without.size() == others.size()) return std::nullopt;
    return made("skip-decided-alone", 0.9,
                fmt::format("the reference leaves out the update of step {}; here the loss of rank {} is not finite, and the decision followed other ranks' losses",
                            inputs.difference.divergence.step, fmt::join(without, ", ")));
  }
  if (others.empty()) return std::nullopt;
  return of_rank(made("skip-decided-alone", kExact,
                      fmt::format("rank {} leaves out the update of step {}, and rank {} makes it", fmt::join(skipping, ", "), inputs.difference.divergence.step,
                                  fmt::join(others, ", "))),
                 skipping);
}

constexpr Rule kRules[] = {schedules_differ, skip_decided_alone, scheduler_stepped_per_rank,  schedule_shifted,   rate_scaled_linear, rate_scaled_sqrt,
                           stepped_per_rank_by_history, shifted_by_history, rate_differs,
                           rate_of_group_differs};

}  // namespace

std::span<const Rule> control_rules() { return kRules; }

}  // namespace lockstep::causes

// Causes of runs that did not finish: what the launcher saw, and what the header exchange said before any
// payload moved.

namespace lockstep {
namespace {

bool says(const Failure& failure, const char* words) {
  return failure.message.find(words) != std::string::npos;
}

std::string told(const Failure& failure) {
  std::string text = failure.rank < 0 ? "the run" : fmt::format("rank {}", failure.rank);
  if (failure.step >= 0) text += fmt::format(" at step {}", failure.step);
  if (!failure.operation.empty()) text += fmt::format(" in {}", failure.operation);
  return text + (failure.message.empty() ? "" : ": " + failure.message);
}

/// The code in the words of gather_rows' header check, or empty.
const char* header_code(const Failure& failure) {
  if (!says(failure, "seen from rank")) return "";
  if (says(failure, " is at step ")) return "step-differs";
  if (says(failure, " calls another collective")) return "collective-order";
  if (says(failure, " with rows of shape ") ||
      (says(failure, " sends ") && says(failure, " tensors, not "))) {
    return "shapes-differ";
  }
  if (says(failure, " sends tensor ") && says(failure, " as ")) return "dtype-differs";
  return "";
}

}  // namespace

std::optional<Cause> name_failure_cause(const Failure& failure, int ranks) {
  std::string code;
  if (failure.kind == FailureKind::threw) {
    code = header_code(failure);
    // A row in exact arithmetic, named before anything was summed.
    if (code.empty() && failure.message.find(kRowNotFinite) != std::string::npos) code = "non-finite";
    if (code.empty()) code = "rank-threw";
  } else if (failure.kind == FailureKind::died) {
    code = "rank-died";
  } else if (failure.kind == FailureKind::hung) {
    code = "rank-hung";
  } else if (failure.kind == FailureKind::slow) {
    code = "rank-slow";
  } else if (failure.kind == FailureKind::unreadable) {
    code = "file-damaged";
  } else {
    return std::nullopt;
  }
  const double confidence = code.starts_with("rank-") || code == "file-damaged" ? 0.9 : causes::kExact;
  Cause cause = causes::made(code.c_str(), confidence, told(failure));
  if (const CausePage* page = find_cause_page(code)) cause.remedy = page->remedy;
  if (code == "rank-hung" && ranks == 1) {
    cause.remedy = "Look at the named operation: a lock, or an input that does not arrive. The run has one process, so no other rank blocks it.";
  }
  return cause;
}

}  // namespace lockstep
