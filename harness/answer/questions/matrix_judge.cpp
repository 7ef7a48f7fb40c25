#include "harness/answer/questions/matrix_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>

#include "harness/answer/questions/growth.h"
#include "harness/answer/questions/question_judge.h"
#include "harness/answer/questions/sentences.h"
#include "harness/answer/results/config_table.h"
#include "harness/answer/stats/controls.h"
#include "harness/answer/stats/estimates.h"
#include "harness/answer/stats/outcome.h"
#include "harness/answer/stats/paired_curves.h"
#include "harness/base/files.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/band.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/evidence/arms.h"
#include "harness/judge/evidence/noise.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan.h"

namespace lockstep {

/// A failure that the judge sees, not the launcher: see Failure::kind.
static Failure judge_failure(FailureKind kind, const std::string& run, std::string message) {
  Failure failure;
  failure.kind = kind;
  failure.run = run;
  failure.message = std::move(message);
  return failure;
}

MatrixEvidence::MatrixEvidence(const Plan& plan, const JudgeOptions& options, const RankResultReader& read)
    : plan_(plan), options_(options), arms_(plan), evidence_(plan.runs.size()) {
  for (std::size_t i = 0; i < plan.runs.size(); ++i) index_.emplace(plan.runs[i].id, i);
  parallel_for(plan.runs.size(), options.jobs, [&](std::size_t i) {
    const PlannedRun& run = plan_.runs[i];
    const auto launched = options_.failures.find(run.id);
    evidence_[i] =
        gather_run(run, dir_of(run), launched == options_.failures.end() ? nullptr : &launched->second, read,
                   plan_.matrix.primary.metric);
  });
}

namespace {

/// Bits part, and what carried the real ranks may add in any order: then that alone is no finding, and each step's sums are held to
/// what another order may give. False where bits decide.
bool hold_prefix_to_band(const MatrixEvidence& evidence, const EvidenceSources& sources, const Cell& cell, const PlannedRun& real,
                         CellResult& result) {
  const PlannedRun* forced = evidence.arms().single_run(cell, RunRole::certify_forced);
  if (forced == nullptr || evidence.of(real).certified_by != kByBand) return false;
  result.certification = sources.hold_to_band({evidence.dir_of(real), evidence.dir_of(*forced), &real.config, result.certification.asked});
  return true;
}

}  // namespace

/// Writes the cell's certification, or why there is none, into the result. Bits are compared first, and certify whatever the
/// backend; where they part over one that publishes no order of adding, the prefix is held to a band.
static void judge_certification(const MatrixEvidence& evidence, const EvidenceSources& sources, const Cell& cell,
                         const std::vector<SeedPair>& pairs, CellResult& result) {
  const Matrix& matrix = evidence.matrix();
  if (cell.noise) return;
  const PlannedRun* real = evidence.arms().single_run(cell, RunRole::certify);
  const PlannedRun* first = pairs.empty() ? nullptr : pairs.front().cell;
  const bool stands_in =
      first && first->config.backend == Backend::emulated && first->config.layout.world_size > 1;
  Certification& certification = result.certification;
  if (!real && !(stands_in && certifies_prefixes(matrix.ranks) && matrix.certify_steps > 0)) return;
  const int64_t asked = std::min(matrix.certify_steps, cell.config.steps - cell.config.resume_step);
  const int64_t seed = real ? real->config.seed : cell.config.seed;
  auto describe = [&](Certification& c) {
    c.wanted = true;
    c.asked = asked;
    c.seed = seed;
    if (c.backend.empty()) c.backend = word_of(real ? real->config.transport : cell.config.transport);
  };
  describe(certification);
  if (result.failure) return;
  const auto emulated = std::ranges::find(pairs, seed, &SeedPair::seed);
  if (!real || emulated == pairs.end()) {
    result.failure =
        judge_failure(FailureKind::lost, real ? real->id : result.run,
                      "the plan has no pair of an emulated run and a real prefix of one seed to certify");
    return;
  }
  try {
    certification = sources.certify(evidence.dir_of(*emulated->cell), evidence.dir_of(*real), asked);
    describe(certification);
    if (certification.divergence && hold_prefix_to_band(evidence, sources, cell, *real, result)) describe(certification);
  } catch (const std::runtime_error& error) {
    result.failure = judge_failure(FailureKind::unreadable, real->id, error.what());
    return;
  }
  if (!certification.divergence && certification.steps < asked) {
    result.failure = judge_failure(
        FailureKind::lost, real->id,
        fmt::format("the real prefix certifies {} of {} steps and then ends", certification.steps, asked));
  }
}

/// Real ranks part from the emulated run that was judged in their place: whatever that run shows does not hold for them. The result
/// must have a divergence in its certification.
static void apply_certification_divergence(CellResult& result) {
  const Divergence& divergence = *result.certification.divergence;
  if (!result.mechanism) result.mechanism.emplace();
  result.mechanism->verdict = VerdictKind::divergent;
  result.mechanism->first_divergence = divergence;
  result.mechanism->cause.reset();  // A cause of the emulated run's own divergence says nothing of this one.
  result.mechanism->sentence =
      "The real ranks differ from the emulated run that was judged in their place: " +
      (divergence.sentence.empty() ? fmt::format("step {}, {}", divergence.step, divergence.where)
                                   : divergence.sentence);
  result.verdict = VerdictKind::divergent;
  result.as_expected = false;
}

namespace {

/// Those of the cell's first seed. Throws std::runtime_error if the plan has no forced run of the reference at the
/// snapshots that `forced_cell` loads. The plan must outlive what is returned.
ForcedInputs forced_inputs(const PlannedArms& arms, const Cell& cell, const PlannedRun& forced_cell, const SeedPair& first,
                           const std::function<std::string(const PlannedRun&)>& dir_of) {
  const Matrix& matrix = arms.plan().matrix;
  const std::string& kept = matrix.replay;
  ForcedInputs inputs;
  inputs.run_a = kept.empty() ? dir_of(*first.reference) : std::filesystem::path(kept).parent_path().string();
  if (asked_by(matrix).trains && kept.empty()) inputs.run_b = dir_of(*first.cell);
  inputs.forced_cell = dir_of(forced_cell);
  inputs.band = matrix.band;
  inputs.reference_config = &first.reference->config;
  inputs.cell_config = &first.cell->config;
  inputs.declared = cell.declared;
  for (const PlannedRun& run : arms.plan().runs) {
    if (!run.config.forced.has_states_of(forced_cell.config.forced)) continue;
    if (run.config.layout != first.reference->config.layout) continue;
    if (run.role != RunRole::forced_reference) continue;
    inputs.forced_reference = dir_of(run);
    const PlannedRun *reference_twin = arms.twin_of(run), *cell_twin = arms.twin_of(forced_cell);
    if (!reference_twin || !cell_twin) continue;
    inputs.reference_twin = dir_of(*reference_twin);
    inputs.cell_twin = dir_of(*cell_twin);
  }
  if (inputs.forced_reference.empty()) {
    const ForcedConfig& forced = forced_cell.config.forced;
    throw std::runtime_error("the plan has no forced run of the reference at the snapshots of " +
                             (forced.from.empty() ? forced.kept_step : forced.from));
  }
  return inputs;
}

class MatrixJudge {
 public:
  MatrixJudge(const MatrixEvidence& evidence, const QuestionJudge& question, const EvidenceSources& sources)
      : evidence_(evidence),
        plan_(evidence.plan()),
        asks_(asked_by(plan_.matrix)),
        judge_(question),
        arms_(evidence.arms()),
        options_(evidence.options()),
        sources_(sources) {}

  CellResult judge_cell(const Cell& cell) const;
  ReferenceResult judge_reference(const Cell& cell) const;

 private:
  std::string dir_of(const PlannedRun& run) const { return evidence_.dir_of(run); }
  const RunEvidence& evidence_of(const PlannedRun& run) const { return evidence_.of(run); }
  std::optional<Failure> find_failure(const Cell& cell, const std::vector<SeedPair>& pairs) const;
  void judge_learning(const Cell& cell, const std::vector<SeedPair>& pairs, CellResult& result) const;
  void judge_computing(const Cell& cell, const SeedPair& first, CellResult& result) const;
  void judge_untraced(const SeedPair& first, CellResult& result) const;
  Mechanism compare_free(const Cell& cell, const SeedPair& pair) const;
  Mechanism judge_forced_runs(const Cell& cell, const PlannedRun& forced_cell, const SeedPair& first) const;
  void judge_exactly(const Cell& cell, CellResult& result) const;
  void judge_drift(const Cell& cell, const std::vector<SeedPair>& pairs, CellResult& result) const;
  void judge_costs(const SeedPair& first, CellResult& result) const;
  void judge_noise_scale(const SeedPair& first, CellResult& result) const;
  bool is_as_expected(const Cell& cell, const CellResult& result) const;
  std::string failed_saves(const std::vector<SeedPair>& pairs) const;
  std::vector<CurveBand> bands_of(const std::vector<const PlannedRun*>& runs) const;

  const MatrixEvidence& evidence_;
  const Plan& plan_;
  const QuestionPlan& asks_;
  const QuestionJudge& judge_;
  const PlannedArms& arms_;
  const JudgeOptions& options_;
  const EvidenceSources& sources_;
};

std::optional<Failure> MatrixJudge::find_failure(const Cell& cell, const std::vector<SeedPair>& pairs) const {
  std::vector<const PlannedRun*> needed;
  for (const SeedPair& pair : pairs) needed.push_back(pair.cell);
  for (const SeedPair& pair : pairs) needed.push_back(pair.reference);
  const std::vector<const PlannedRun*> forced = arms_.forced_runs(cell);
  needed.insert(needed.end(), forced.begin(), forced.end());
  for (const RunRole role : {RunRole::certify, RunRole::certify_forced}) {
    if (const PlannedRun* run = arms_.single_run(cell, role)) needed.push_back(run);
  }
  if (pairs.empty()) return judge_failure(FailureKind::lost, "", cell.name + ": the matrix has no seed");
  // An interruption says least: what else went wrong comes before it.
  const Failure* first = nullptr;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) {
      return judge_failure(FailureKind::lost, "",
                           fmt::format("the plan has no run of seed {} of {}", pairs[i % pairs.size()].seed,
                                       i < pairs.size() ? cell.name : cell.reference_name));
    }
    const auto& failure = evidence_of(*needed[i]).failure;
    if (failure && (!first || (first->kind == FailureKind::interrupted && failure->kind != FailureKind::interrupted)))
      first = &*failure;
  }
  if (first) return *first;
  // Of forced runs and prefixes only those that stand for the cell itself have to reach the fault. One that is too small
  // to change a bit of the cell's precision may act in its float64 twin.
  const PlannedRun* forced_cell = arms_.single_run(cell, RunRole::forced_cell);
  const PlannedRun* twin = forced_cell ? arms_.twin_of(*forced_cell) : nullptr;
  if (twin && twin != forced_cell && !evidence_of(*twin).idle_fault) return std::nullopt;
  for (std::size_t i = 0; i < 2 * pairs.size(); ++i) {
    if (const auto& idle = evidence_of(*needed[i]).idle_fault) return idle;
  }
  return std::nullopt;
}

void MatrixJudge::judge_learning(const Cell& cell, const std::vector<SeedPair>& pairs,
                                 CellResult& result) const {
  const Matrix& matrix = plan_.matrix;
  const bool asked = asks_.by_outcome || cell.power_control;
  if (result.failure || (!asked && pairs.size() < 2)) return;
  MetricsBySeed cell_metrics, reference_metrics;
  PairedRuns runs{cell.name,
                  cell.reference_name,
                  cell.config.layout.global_batch(),
                  cell.reference.layout.global_batch(),
                  {},
                  {},
                  {},
                  std::string(spec_of(cell.config).shown_metric)};
  for (const SeedPair& pair : pairs) {
    cell_metrics[pair.seed] = evidence_of(*pair.cell).metrics;
    reference_metrics[pair.seed] = evidence_of(*pair.reference).metrics;
    runs.seeds.push_back(pair.seed);
    runs.cell_runs.push_back(&evidence_of(*pair.cell));
    runs.reference_runs.push_back(&evidence_of(*pair.reference));
  }
  align_areas(runs, cell_metrics, reference_metrics);
  try {
    const OutcomeInputs inputs{cell.name,
                               cell.reference_name,
                               cell_metrics,
                               reference_metrics,
                               matrix.primary,
                               samples_ratio(cell.config, cell.reference)};
    const bool looks = matrix.seeds_auto.on && !cell.noise && !cell.anchor;
    result.outcome = looks ? judge_sequentially(inputs, matrix.seeds_auto) : judge_outcome(inputs);
    judge_curves(runs, at_last_analysis(matrix.primary, *result.outcome), *result.outcome);
  } catch (const OutcomeError& error) {
    // A matrix that asks for the mechanism need not measure what an outcome takes.
    if (!asked && error.kind() == FailureKind::unmeasured) return;
    result.failure = judge_failure(error.kind(), result.run, error.what());
  }
}

Mechanism MatrixJudge::judge_forced_runs(const Cell& cell, const PlannedRun& forced_cell, const SeedPair& first) const {
  const ForcedInputs inputs =
      forced_inputs(arms_, cell, forced_cell, first, [this](const PlannedRun& run) { return dir_of(run); });
  return judge_.judge_forced != nullptr ? judge_.judge_forced(inputs) : sources_.judge_forced(inputs);
}

/// Runs without traces. At equal layouts the ranks' results tell whether both ended with the same bits; at
/// different layouts nothing can be compared.
void MatrixJudge::judge_untraced(const SeedPair& first, CellResult& result) const {
  const Layout& layout = first.cell->config.layout;
  if (judge_.compare_untraced == nullptr || layout != first.reference->config.layout) {
    result.mechanism.emplace();
    result.mechanism->sentence = "No traces were kept (trace: off), so what was computed cannot be compared.";
    return;
  }
  if (result.failure) return;
  try {
    result.mechanism = judge_.compare_untraced(dir_of(*first.reference), dir_of(*first.cell), layout.world_size,
                                       sources_.read_rank_result);
  } catch (const std::runtime_error& error) {
    result.failure = judge_failure(FailureKind::unreadable, first.cell->id, error.what());
  }
}

/// Of the runs that trained freely.
Mechanism MatrixJudge::compare_free(const Cell& cell, const SeedPair& pair) const {
  // What a command's run does, its traces declare: the config knows no more than how it was started.
  const bool command = trains_command(plan_.matrix);
  return sources_.compare_runs({dir_of(*pair.reference),
                                dir_of(*pair.cell),
                                {},
                                plan_.matrix.band,
                                command ? nullptr : &pair.reference->config,
                                command ? nullptr : &pair.cell->config,
                                command ? std::vector<std::string>{} : cell.declared});
}

void MatrixJudge::judge_computing(const Cell& cell, const SeedPair& first, CellResult& result) const {
  if (!first.cell || !first.reference) return;
  if (judge_.judge_run != nullptr) {
    try {
      result.mechanism = judge_.judge_run(dir_of(*first.cell));
    } catch (const std::runtime_error& error) {
      if (!result.failure) result.failure = judge_failure(FailureKind::unreadable, first.cell->id, error.what());
    }
    return;
  }
  // Steps of unequal batches are of other samples by design: what is learned from as many is the question.
  if (asks_.by_outcome &&
      cell.config.layout.global_batch() != cell.reference.layout.global_batch()) {
    return;
  }
  if (first.cell->config.trace == TraceLevel::off || first.reference->config.trace == TraceLevel::off) {
    judge_untraced(first, result);
    return;
  }
  if (cell.config.arithmetic != cell.reference.arithmetic) {
    result.mechanism.emplace();
    result.mechanism->sentence = "Exact and native arithmetic round differently, so bits are not compared.";
    return;
  }
  const PlannedRun* forced_cell = arms_.single_run(cell, RunRole::forced_cell);
  if (forced_cell) {
    try {
      // At the reference's own layout the bits may be equal; a band is needed only where they are not.
      const bool trained = asks_.trains && plan_.matrix.replay.empty();
      if (trained && cell.config.layout == cell.reference.layout) {
        result.mechanism = compare_free(cell, first);
        if (result.mechanism->verdict == VerdictKind::identical) return;
      }
      result.mechanism = judge_forced_runs(cell, *forced_cell, first);
      return;
    } catch (const std::runtime_error& error) {
      if (!result.failure) {
        // What the free runs show would read as the finding, and is not what was asked.
        result.failure = judge_failure(FailureKind::unreadable, forced_cell->id, error.what());
        return;
      }
    }
  }
  if (!asks_.trains) return;
  // Also of a run that failed: its trace up to there may say why.
  try {
    result.mechanism = compare_free(cell, first);
  } catch (const std::runtime_error& error) {
    if (!result.failure) result.failure = judge_failure(FailureKind::unreadable, first.cell->id, error.what());
  }
}

/// The first steps of cell and reference in exact arithmetic. What they show stands beside the verdict, which is about the
/// runs that were asked for.
void MatrixJudge::judge_exactly(const Cell& cell, CellResult& result) const {
  const std::optional<ExactPair> pair = exact_pair_of(plan_.matrix, cell);
  if (!pair) return;
  Certification& exact = result.exact.emplace();
  exact.wanted = true;
  exact.asked = pair->steps;
  exact.seed = pair->cell.seed;
  exact.backend = words_of(Backend{})[static_cast<std::size_t>(Backend::emulated)];
  if (result.failure) return;
  const PlannedRun *reference = arms_.run_of(pair->reference), *own = arms_.run_of(pair->cell);
  for (const PlannedRun* run : {reference, own}) {
    if (run == nullptr || evidence_of(*run).failure) {
      result.failure = run == nullptr ? judge_failure(FailureKind::lost, "", "the plan has no exact pair of " + cell.name)
                                      : *evidence_of(*run).failure;
      return;
    }
  }
  try {
    const Mechanism mechanism =
        sources_.compare_runs({dir_of(*reference), dir_of(*own), {}, plan_.matrix.band, &pair->reference, &pair->cell, cell.declared});
    exact.divergence = mechanism.first_divergence;
    exact.steps = exact.divergence ? std::clamp<int64_t>(exact.divergence->step, 0, pair->steps)
                                   : std::min(mechanism.compared_steps, pair->steps);
  } catch (const std::runtime_error& error) {
    result.failure = judge_failure(FailureKind::unreadable, own->id, error.what());
  }
}

/// How far rounding alone carries a cell that is its reference in another arithmetic.
void MatrixJudge::judge_drift(const Cell& cell, const std::vector<SeedPair>& pairs, CellResult& result) const {
  if (result.failure || !rounds_alone(cell)) return;
  std::vector<DriftPair> apart;
  for (const SeedPair& pair : pairs) {
    if (!pair.cell || !pair.reference || pair.cell->config.trace == TraceLevel::off) return;
    apart.push_back({&evidence_of(*pair.reference), &evidence_of(*pair.cell), dir_of(*pair.reference), dir_of(*pair.cell)});
  }
  try {
    result.drift = drift_of(apart, cell.config, plan_.matrix.primary.metric);
  } catch (const std::runtime_error& error) {
    result.failure = judge_failure(FailureKind::unreadable, result.run, error.what());
    return;
  }
  if (const std::string words = drift_sentence(result.drift); result.mechanism && !words.empty())
    result.mechanism->sentence += " " + words;
}

void MatrixJudge::judge_costs(const SeedPair& first, CellResult& result) const {
  if (judge_.read_costs == nullptr || result.failure || !first.cell) return;
  try {
    result.costs = judge_.read_costs(dir_of(*first.cell));
  } catch (const std::runtime_error& error) {
    result.failure = judge_failure(FailureKind::unreadable, first.cell->id, error.what());
  }
}

void MatrixJudge::judge_noise_scale(const SeedPair& first, CellResult& result) const {
  // The noise scale advises on the learning rate for a batch, which does not matter where equal bits are
  // asked for.
  if (!asks_.by_outcome || result.failure || !first.cell || !sources_.read_noise_scale || trains_command(plan_.matrix)) return;
  try {
    result.noise_scale = sources_.read_noise_scale(first.cell->config, dir_of(*first.cell));
  } catch (const std::runtime_error& error) {
    result.failure = judge_failure(FailureKind::unreadable, first.cell->id, error.what());
  }
}

/// What guessing gives, where the metric's trainer computes it from another metric of the run.
std::optional<double> chance_of(std::string_view metric, const std::map<std::string, double>& of_run) {
  const MetricName name = metric_name(metric);
  if (name.spec == nullptr || name.area || name.spec->chance_by == nullptr) return std::nullopt;
  const auto found = of_run.find(std::string(name.spec->chance_metric));
  if (found == of_run.end()) return std::nullopt;
  return name.spec->chance_by(found->second);
}

std::vector<CurveBand> MatrixJudge::bands_of(const std::vector<const PlannedRun*>& runs) const {
  std::vector<std::string> metrics;
  for (const MetricSpec& metric : spec_of(plan_.runs.front().config).metrics()) {
    if (metric.shown) metrics.emplace_back(metric.name);
  }
  const std::string& primary = plan_.matrix.primary.metric;
  if (std::ranges::find(metrics, primary) == metrics.end()) metrics.push_back(primary);
  std::vector<const RunEvidence*> finished;
  for (const PlannedRun* run : runs) {
    if (run && !evidence_of(*run).failure) finished.push_back(&evidence_of(*run));
  }
  std::vector<CurveBand> bands = curve_bands(finished, metrics);
  for (CurveBand& band : bands) band.chance = chance_of(band.metric, finished.front()->metrics);
  return bands;
}

bool MatrixJudge::is_as_expected(const Cell& cell, const CellResult& result) const {
  if (cell.power_control && result.verdict != VerdictKind::divergent) return false;
  // An expected failure must come from the fault; a fault that never acted is not expected.
  if (result.failure && result.failure->kind == FailureKind::idle) return false;
  const auto& expected = result.expected;
  if (!expected.empty()) return std::ranges::find(expected, result.verdict) != expected.end();
  // One seed answers no question of an outcome, unless that is all that was expected.
  const bool too_few =
      judge_.needs_pairs && !cell.noise && !cell.anchor && result.outcome && result.outcome->n < 2;
  return result.verdict != VerdictKind::failed && !too_few;
}

/// Of the first run that has any, and in how many further ones: "2 of 8 saves failed, …; in 3 further runs too".
std::string MatrixJudge::failed_saves(const std::vector<SeedPair>& pairs) const {
  std::string text;
  int64_t more = 0;
  for (const PlannedRun* SeedPair::* const side : {&SeedPair::cell, &SeedPair::reference}) {
    for (const SeedPair& pair : pairs) {
      const PlannedRun* const run = pair.*side;
      if (run == nullptr || evidence_of(*run).failed_saves.empty()) continue;
      if (text.empty())
        text = fmt::format("{}{}", side == &SeedPair::reference ? "reference: " : "", evidence_of(*run).failed_saves);
      else
        ++more;
    }
  }
  return more == 0 ? text : fmt::format("{}; in {} too", text, counted(more, "further run"));
}

CellResult MatrixJudge::judge_cell(const Cell& cell) const {
  const std::vector<SeedPair> pairs = arms_.pair_seeds(cell);
  CellResult result;
  result.scenario = cell.name;
  result.short_name = cell.short_name;
  result.reference = judge_.judge_run != nullptr ? "the rollouts" : cell.reference_name;
  result.power_control = cell.power_control;
  result.noise = cell.noise;
  result.anchor = cell.anchor;
  result.expected = cell.expected;
  if (cell.power_control && result.expected.empty()) result.expected = {VerdictKind::divergent};
  result.settings = cell.settings;
  say_config(cell.config, result);
  if (!cell.anchor) result.config_differences = config_differences(cell.reference, cell.config, cell.declared);
  result.rerun = rerun_line(options_.command, plan_.matrix, cell);
  result.failure = find_failure(cell, pairs);
  result.failed_saves = failed_saves(pairs);
  if (!pairs.empty()) {
    if (pairs.front().cell) result.run = pairs.front().cell->id;
    if (pairs.front().reference) result.reference_run = pairs.front().reference->id;
    judge_learning(cell, pairs, result);
    if (!options_.outcomes_only) {
      judge_computing(cell, pairs.front(), result);
      judge_certification(evidence_, sources_, cell, pairs, result);
      judge_exactly(cell, result);
      judge_drift(cell, pairs, result);
      judge_costs(pairs.front(), result);
      judge_noise_scale(pairs.front(), result);
    }
  }
  std::vector<const PlannedRun*> runs;
  for (const SeedPair& pair : pairs) runs.push_back(pair.cell);
  if (!options_.outcomes_only) result.curves = bands_of(runs);

  if (result.failure) {
    result.verdict = VerdictKind::failed;
  } else {
    result.verdict = cell.power_control ? verdict_by_outcome(result) : judge_.verdict(result);
  }
  result.as_expected = is_as_expected(cell, result);
  if (result.certification.divergence) apply_certification_divergence(result);
  if (result.failure) {
    const auto failed = std::ranges::find(plan_.runs, result.failure->run, &PlannedRun::id);
    const Layout& layout = failed == plan_.runs.end() ? cell.config.layout : failed->config.layout;
    result.cause = name_failure_cause(*result.failure, layout.world_size);
  }
  return result;
}

ReferenceResult MatrixJudge::judge_reference(const Cell& cell) const {
  ReferenceResult result;
  result.name = cell.reference_name;
  result.config = config_rows(cell.reference);
  result.layout = cell.reference.layout;
  std::vector<const PlannedRun*> runs;
  std::map<std::string, std::vector<double>> values;
  for (const SeedPair& pair : arms_.pair_seeds(cell)) {
    if (!pair.reference || evidence_of(*pair.reference).failure) continue;
    runs.push_back(pair.reference);
    for (const auto& [metric, value] : evidence_of(*pair.reference).metrics) {
      if (std::isfinite(value)) values[metric].push_back(value);
    }
  }
  result.curves = bands_of(runs);
  for (const auto& [metric, numbers] : values) {
    if (numbers.size() == runs.size()) result.metric_means[metric] = summarize_differences(numbers).mean;
  }
  return result;
}

}  // namespace

Results judge_matrix_from(const Plan& plan, const JudgeOptions& options, const EvidenceSources& sources) {
  const Matrix& matrix = plan.matrix;
  const QuestionJudge& question = sources.question != nullptr ? *sources.question : judge_of(matrix.question);
  const MatrixEvidence evidence(plan, options, sources.read_rank_result);
  const MatrixJudge judge(evidence, question, sources);
  Results results;
  results.name = matrix.name;
  results.config_file = matrix.file;
  results.question_text = matrix.question_text;
  results.question = matrix.question;
  results.primary = matrix.primary;
  results.seeds = matrix.seeds;
  results.rerun = options.command;
  for (const Cell& cell : matrix.cells) results.steps = std::max(results.steps, cell.config.steps);

  results.cells.resize(matrix.cells.size());
  parallel_for(matrix.cells.size(), options.jobs,
               [&](std::size_t i) { results.cells[i] = judge.judge_cell(matrix.cells[i]); });
  adjust_for_family(results.cells);
  note_rounding(results.cells);
  results.growth = judge_growth(matrix, results.cells);
  if (!options.outcomes_only) {
    results.provenance = gather_provenance(plan, options.out_dir);
    results.timing = judge_timing(plan, options.out_dir, options.failures, sources.read_rank_result,
                                  results.provenance);
  }
  if (question.complete != nullptr) question.complete(evidence, results);
  const bool lists = !question.omits_references;
  std::set<std::string> seen;
  for (const Cell& cell : matrix.cells) {
    if (!lists || options.outcomes_only) break;
    // An A/A pair of a cell is compared with that cell, which stands in the results already.
    const auto is_cell = [&](const Cell& other) { return other.name == cell.reference_name; };
    if (cell.noise && std::ranges::any_of(matrix.cells, is_cell)) continue;
    if (seen.insert(cell.reference_name).second) results.references.push_back(judge.judge_reference(cell));
  }
  note_controls(results);
  results.summary = summarize_results(results);
  results.summary.runs = static_cast<int>(plan.runs.size());
  results.summary.runs_reused = static_cast<int>(std::ranges::count_if(plan.runs, &PlannedRun::reused));
  return results;
}

// The judge with its real sources: traces and rank results on disk.

Results judge_matrix(const Plan& plan, const JudgeOptions& options) {
  const KeptPages kept;  // traces of a wide model come and go by hundreds of megabytes
  return judge_matrix_from(plan, options,
                           {read_rank_result, compare_runs, judge_forced, certify, read_noise_scale, hold_to_band});
}

}  // namespace lockstep
