#include "harness/verdict/causes/mechanism.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/verdict/causes/cause.h"
#include "harness/verdict/evidence/rows_apart.h"
#include "harness/verdict/trace/rank_result.h"

namespace lockstep {
namespace {

/// Where the comparison tells no single rank and the cause proves one, the first divergence tells that.
void tell_rank(Mechanism& mechanism, int world_size) {
  if (!mechanism.cause || !mechanism.cause->rank || !mechanism.first_divergence || mechanism.first_divergence->rank >= 0) return;
  Divergence& told = *mechanism.first_divergence;
  const std::string old = fmt::format(", {}: ", rank_text(told.rank, world_size)), now = fmt::format(", {}: ", rank_text(*mechanism.cause->rank, world_size));
  told.rank = *mechanism.cause->rank;
  for (std::string* text : {&told.sentence, &mechanism.sentence}) {
    const std::size_t at = text->find(old);
    if (at != std::string::npos) text->replace(at, old.size(), now);
  }
}

Mechanism named(Comparison comparison, const std::vector<ConfigDifference>& differences, const std::optional<ProbeReplays>& replays = {}) {
  Mechanism& mechanism = comparison.mechanism;
  if (comparison.around) {
    if (replays && !replays->cell_rows.empty())
      comparison.around->rows = rows_apart(replays->reference_rows, replays->cell_rows, comparison.around->difference.divergence.step);
    comparison.around->config_differences = differences;
    // What one header alone declares is not known to differ: told, and no cause.
    std::erase_if(comparison.around->config_differences, [](const ConfigDifference& each) { return each.reference == kNotDeclared || each.cell == kNotDeclared; });
    mechanism.cause = name_cause(*comparison.around);
    if (comparison.around->cell) tell_rank(mechanism, static_cast<int>(comparison.around->cell->ranks.size()));
  }
  return std::move(mechanism);
}

/// What is configured otherwise comes first, whatever the verdict.
Mechanism with_differences(Mechanism mechanism, const std::vector<ConfigDifference>& differences) {
  if (!differences.empty()) mechanism.sentence = fmt::format("Configs differ in {}. {}", differences_text(differences), mechanism.sentence);
  return mechanism;
}

/// A difference of runs that are not at the same bits counts only if a closed form explains it.
bool is_explained(const CauseInputs& inputs) {
  constexpr double kCertain = 0.9;
  const auto cause = name_cause(inputs);
  if (!cause || cause->code == "unexplained") return false;
  // One factor on all of several tensors is unlike anything that rounding grows into, though many mistakes have one.
  const bool of_all = cause->code == "constant-factor" && inputs.forced && inputs.forced->reference.gradients.size() > 1;
  return of_all || cause->confidence >= kCertain;
}


ForcedInputs inputs_of(const ProbeReplays& replays, const CompareOptions& options) {
  ForcedInputs inputs;
  inputs.reference_free = options.run_a;
  inputs.cell_free = options.run_b;
  inputs.forced_reference = replays.reference;
  inputs.forced_cell = replays.cell;
  inputs.reference_twin = replays.reference_twin;
  inputs.cell_twin = replays.cell_twin;
  inputs.forced_repeats = replays.repeats;
  inputs.steps = inputs.forced_steps = options.steps;
  inputs.beside_free = true;
  return inputs;
}

/// The first of run B's own steps that the replayed function does not give from the run's own weights and samples.
/// Where it gives that step of the reference, the run did something else there; else the function is not the
/// training's.
std::optional<Mechanism> beside_the_function(const Mechanism& forced, const CompareOptions& options) {
  const ProbeReport reference = read_probe_report(options.run_a, 0), cell = read_probe_report(options.run_b, 0);
  const auto first = std::ranges::min_element(cell.differ, {}, &TriedDifference::step);
  if (first == cell.differ.end() || (options.steps > 0 && first->step >= options.steps)) return std::nullopt;
  const bool of_reference = std::ranges::find(reference.differ, first->step, &TriedDifference::step) != reference.differ.end();
  Mechanism told = forced;
  if (of_reference || std::ranges::find(reference.tried, first->step) == reference.tried.end()) {
    told.verdict = VerdictKind::inconclusive;
    told.sentence = fmt::format("The replayed function does not give what the run computed at step {}, rank {}{}: {}. So replays do not stand for the training there: give "
                                "probe.replay a function that does what the training does at that step. {}",
                                first->step, first->rank, of_reference ? ", nor the reference's" : "", first->says, forced.sentence);
    return told;
  }
  Divergence where{first->step, first->phase, first->rank, first->tensor, DivergenceKind::value,
                   "what the replayed function gives from the same weights and samples, as in the reference", first->says, ""};
  where.sentence = fmt::format("They first differ at step {}, {}, rank {}: {}. The replayed function gives the reference's step, and not this run's: "
                               "the training did something else there.", where.step, where.phase, where.rank, first->says);
  told.verdict = VerdictKind::divergent;
  told.sentence = fmt::format("{} What replays compare agrees: {}", where.sentence, forced.sentence);
  told.first_divergence = std::move(where);
  told.cause = Cause{"unexplained", 0, "no known cause fits", std::string(find_cause_page("unexplained")->remedy)};
  return told;
}

/// What the runs' own traces leave open is decided by replays of the reference's steps; what either shows first counts.
Mechanism by_replays(Mechanism free, Mechanism forced, const CompareOptions& options, const Comparison& of_traces) {
  const bool parted = free.verdict == VerdictKind::divergent;
  if (forced.verdict == VerdictKind::divergent) {
    return !parted || forced.first_divergence->step < free.first_divergence->step ? std::move(forced) : std::move(free);
  }
  if (parted || forced.verdict != VerdictKind::within_envelope) return free;
  if (auto beside = beside_the_function(forced, options)) {
    forced = *std::move(beside);
  } else if (!of_traces.left.empty()) {
    const std::vector<int64_t> tried = read_probe_report(options.run_b, 0).tried;
    const bool is_given = std::ranges::find(tried, of_traces.left_at) != tried.end();
    const std::string open = fmt::format("No known cause explains it, and the replayed function does not contain it. To decide, let the probe keep the "
                                         "values of step {0}, at which it then tries the function (lockstep trace --snapshots {0}).", of_traces.left_at);
    forced.verdict = VerdictKind::inconclusive;
    forced.sentence = fmt::format("Replayed steps agree, but from step {} on the run itself is not judged: {}. {} {}", of_traces.left_at, of_traces.left,
                                  is_given ? "The function gives that step from the run's own weights: what moved these the replays do not contain. "
                                             "To decide, compare two runs of one layout, with and without what differs."
                                           : open, forced.sentence);
  }
  if (!free.sentence.empty()) forced.sentence += " In the runs themselves:" + free.sentence;
  return forced;
}

/// Is it a class of PyTorch's, as the probe names it? What another one computes its name does not tell.
bool is_known_optimizer(const std::string& name) {
  constexpr const char* kNames[] = {"sgd",    "adam",   "adamw",    "adagrad",   "adadelta", "adamax", "asgd",
                                    "nadam",  "radam",  "rmsprop",  "rprop",     "adafactor", "muon",  "lbfgs"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

/// From which step on another setting of the optimizer acts; nothing for other keys, and where one header alone
/// declares it.
std::optional<int64_t> acts_from(const ConfigDifference& difference) {
  if (difference.reference == kNotDeclared || difference.cell == kNotDeclared) return std::nullopt;
  const std::string& key = difference.key;
  if (key == "optimizer") return is_known_optimizer(difference.reference) && is_known_optimizer(difference.cell) ? std::optional<int64_t>(0) : std::nullopt;
  if (key == "weight_decay" || key == "eps") return 0;
  if (key == "momentum" || key == "beta1" || key == "beta2") return 1;
  return std::nullopt;
}

/// Two optimizers with other settings train otherwise, also where no update could be recomputed and rounding hides the
/// difference.
Mechanism parted_by_settings(Mechanism mechanism, const std::vector<ConfigDifference>& differences) {
  if (mechanism.verdict != VerdictKind::within_envelope && mechanism.verdict != VerdictKind::inconclusive) return mechanism;
  const ConfigDifference* first = nullptr;
  for (const ConfigDifference& each : differences) {
    if (acts_from(each) && (!first || *acts_from(each) < *acts_from(*first))) first = &each;
  }
  if (!first) return mechanism;
  Divergence told{*acts_from(*first), name_of(Phase::parameters), kAllRanks, first->key, DivergenceKind::value, first->reference, first->cell, ""};
  told.sentence = fmt::format("The optimizers' settings differ, which acts from step {} on: {} {} where the reference has {}.", told.step, first->key, first->cell, first->reference);
  mechanism.verdict = VerdictKind::divergent;
  mechanism.sentence = told.sentence + (mechanism.sentence.empty() ? "" : " What could be compared: " + mechanism.sentence);
  mechanism.first_divergence = std::move(told);
  mechanism.cause = Cause{"config-differs", 0.9, fmt::format("the headers declare {} {} and {}", first->key, first->reference, first->cell), std::string(find_cause_page("config-differs")->remedy)};
  return mechanism;
}

/// Where and why a run ended, and what was trained and not recorded, come before everything else. Where that is as much
/// as what was recorded, nothing good can be said of the training.
Mechanism with_accounts(Mechanism mechanism, const CompareOptions& options) {
  const RunAccount a = read_run_account(options.run_a), b = read_run_account(options.run_b);
  std::string begin;
  for (const auto& [name, account] : {std::pair{"Run A", &a}, std::pair{"Run B", &b}})
    if (!account->ended.empty()) begin += fmt::format("{} {}. ", name, account->ended);
  const bool alike = a.unrecorded == b.unrecorded;
  if (!a.unrecorded.empty()) begin += fmt::format("In {}: {}. ", alike ? "both runs" : "run A", a.unrecorded);
  if (!b.unrecorded.empty() && !alike) begin += fmt::format("In run B: {}. ", b.unrecorded);
  for (const RunAccount* each : {&a, &b})
    if (!each->also.empty() && (each == &a || options.run_a != options.run_b))
      begin += fmt::format("{} {} further training of the run, to be compared by its own name. ", fmt::join(each->also, ", "), each->also.size() == 1 ? "holds a" : "hold each a");
  const bool is_good = mechanism.verdict == VerdictKind::identical || mechanism.verdict == VerdictKind::within_envelope;
  if (is_good && (a.leaves_open || b.leaves_open)) {
    mechanism.verdict = VerdictKind::inconclusive;
    begin += "So at least as many steps are unknown as are recorded: record each training by a lockstep trace of its own, or choose it by "
             "attach(model, optimizer). What was recorded: ";
  }
  mechanism.sentence = begin + mechanism.sentence;
  return mechanism;
}

}  // namespace

Mechanism compare_runs(const CompareOptions& options) {
  CompareOptions asking = options;
  asking.explains = is_explained;
  const bool alone = !options.reference_config && !options.cell_config && options.repeats.empty();
  const std::optional<ProbeReplays> replays = alone ? probe_replays(options.run_a, options.run_b) : std::nullopt;
  asking.replayed = replays.has_value();
  const Comparison free = compare_traces(asking);
  const bool is_open = free.mechanism.verdict != VerdictKind::identical && free.mechanism.verdict != VerdictKind::within_envelope;
  const std::vector<ConfigDifference> differences = differences_of(options);
  Mechanism mechanism = named(free, differences, replays);
  if (replays && is_open) {
    ForcedInputs forced = inputs_of(*replays, options);
    forced.adds_gradients = free.adds_gradients;
    mechanism = by_replays(std::move(mechanism), named(compare_forced(forced), differences, replays), options, free);
  }
  mechanism = with_differences(alone ? parted_by_settings(std::move(mechanism), differences) : std::move(mechanism), differences);
  return alone ? with_accounts(std::move(mechanism), options) : mechanism;
}

Mechanism judge_forced(const ForcedInputs& inputs) {
  if (!inputs.forced_reference.empty()) {
    const std::vector<ConfigDifference> differences = config_differences(inputs.configs());
    return with_differences(named(compare_forced(inputs), differences), differences);
  }
  CompareOptions free;
  free.run_a = inputs.reference_free;
  free.run_b = inputs.cell_free;
  free.steps = inputs.steps;
  return compare_runs(free);
}

}  // namespace lockstep
