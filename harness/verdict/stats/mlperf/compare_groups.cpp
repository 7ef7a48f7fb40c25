#include "harness/verdict/stats/mlperf/compare_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/base/counted.h"
#include "harness/base/errors.h"
#include "harness/verdict/results/interval_words.h"

namespace lockstep {
namespace {

bool has_counts(const RunGroup& group, bool samples) {
  return !(samples ? group.samples : group.epochs).empty();
}

/// MLPerf's rules; for a benchmark that it does not know, as many runs as there are, in samples if all count
/// them.
MlperfRules rules_for(const std::vector<RunGroup>& reference, const RunGroup& submission) {
  if (auto known = mlperf_rules(submission.benchmark)) return *known;
  MlperfRules rules;
  rules.benchmark = submission.benchmark;
  rules.runs = static_cast<int>(std::max(submission.samples.size(), submission.epochs.size()));
  const auto has_samples = [](const RunGroup& group) { return has_counts(group, true); };
  rules.samples = has_samples(submission) && std::ranges::all_of(reference, has_samples);
  return rules;
}

/// In the unit of the rules. Their points of some benchmarks hold samples under the name of epochs.
std::vector<double> values_of(const RunGroup& group, const MlperfRules& rules) {
  const bool theirs = mlperf_rules(group.benchmark).has_value();
  if (has_counts(group, rules.samples)) return rules.samples ? group.samples : group.epochs;
  if (rules.samples && theirs) return group.epochs;
  throw ConfigError(fmt::format("{}: does not count {}, as the other side does", group.name,
                                rules.samples ? "samples" : "epochs"));
}

std::optional<OutcomeComparison> outcome_of(const std::vector<RunGroup>& reference,
                                            const RunGroup& submission, const Given& given) {
  if (reference.size() != 1 || !reference.front().arm || !submission.arm) return std::nullopt;
  const ArmPair pair{*reference.front().arm, *submission.arm, {}};
  if (!given.margin && !pair.reference.primary && !pair.cell.primary) return std::nullopt;
  const auto keys = [](const Arm& arm) {
    std::vector<int64_t> seeds;
    for (const auto& [seed, run] : arm.runs) seeds.push_back(seed);
    return seeds;
  };
  if (keys(pair.reference) != keys(pair.cell)) return std::nullopt;
  return compare_arms(pair, primary_of(pair.reference, pair.cell, given));
}

/// Two-sided, of what both took to converge, where there is a margin in that unit.
void judge_unpaired(const std::vector<double>& reference, const std::vector<double>& submission,
                    const std::string& unit, const Given& given, OwnVerdict& own) {
  const auto failed = std::ranges::count_if(submission, [](double v) { return !std::isfinite(v); }) +
                      std::ranges::count_if(reference, [](double v) { return !std::isfinite(v); });
  if (failed > 0) {
    own.sentence = fmt::format(
        "{} never reached the target; no value is made up for {}, so the difference has no interval.",
        counted(failed, "run"), failed == 1 ? "it" : "them");
    return;
  }
  own.difference = welch_difference(reference, submission, given.alpha.value_or(0.05));
  if (!own.difference) {
    own.sentence = "At least 2 runs on each side are needed for an interval.";
    return;
  }
  const UnpairedDifference& d = *own.difference;
  const std::string size =
      fmt::format("{} to converge differ by {:+.6g} ({} interval {:+.6g} to {:+.6g}, {} runs against {})", unit,
                  d.mean, level_words(d.interval.level), d.interval.low, d.interval.high, submission.size(),
                  reference.size());
  if (!given.margin) {
    own.sentence =
        size + "; no margin in that unit is declared (--margin), so equivalence cannot be judged.";
    return;
  }
  own.verdict = decide_unpaired(d, *given.margin);
  own.sentence = fmt::format("{} against a margin of {}.", size, *given.margin);
  if (own.verdict == VerdictKind::equivalent) {
    own.sentence.insert(own.sentence.size() - 1,
                        fmt::format("; the {} interval, which decides it, is {:+.6g} to {:+.6g}",
                                    level_words(d.equivalence.level), d.equivalence.low, d.equivalence.high));
  }
}

OwnVerdict own_verdict(const std::vector<RunGroup>& reference, const RunGroup& submission,
                       const MlperfJudgement& judgement, const MlperfRules& rules, const Given& given) {
  OwnVerdict own;
  const std::string unit = rules.samples ? "samples" : "epochs";
  const auto same = std::ranges::find(reference, submission.batch, &RunGroup::batch);
  own.outcome = outcome_of(reference, submission, given);
  // A margin of the metric says nothing about samples.
  Given of_unit = given;
  if (own.outcome) of_unit.margin.reset();
  if (same != reference.end()) {
    judge_unpaired(values_of(*same, rules), values_of(submission, rules), unit, of_unit, own);
  } else {
    own.sentence = judgement.point ? fmt::format(
                                         "The reference has no runs at batch {}, so there is no interval to "
                                         "compare with.",
                                         submission.batch)
                                   : "There is no reference to compare with.";
  }
  if (own.outcome) {
    own.verdict = own.outcome->verdict;
    own.sentence = own.outcome->sentence;
  }
  return own;
}

void check_benchmarks(const std::vector<RunGroup>& reference, const RunGroup& submission) {
  for (const RunGroup& group : reference) {
    if (group.benchmark == submission.benchmark) continue;
    throw ConfigError(fmt::format("{} belongs to the benchmark {}, {} to {}: they cannot be compared",
                                  submission.name, submission.benchmark, group.name, group.benchmark));
  }
}

/// What was made of names and points that can be read in more than one way.
std::vector<std::string> notes_on(const std::vector<RunGroup>& reference, const RunGroup& submission) {
  std::vector<std::string> notes;
  const auto note = [&notes](const std::string& text) {
    if (!text.empty()) notes.push_back(text);
  };
  note(unknown_benchmark_words(submission.benchmark));
  const auto renamed = std::ranges::find_if(reference, [](const RunGroup& group) { return !group.note.empty(); });
  if (renamed != reference.end()) note(renamed->note);
  const auto at_batch = std::ranges::count(reference, submission.batch, &RunGroup::batch);
  if (at_batch > 1) {
    const auto first = std::ranges::find(reference, submission.batch, &RunGroup::batch);
    note(fmt::format(
        "the reference has {} points at batch {}; as in MLPerf's checker the first of the file, {}, counts",
        at_batch, submission.batch, first->name));
  }
  return notes;
}

}  // namespace

MlperfComparison compare_groups(const std::vector<RunGroup>& reference, const RunGroup& submission,
                                const Given& given) {
  check_benchmarks(reference, submission);
  MlperfComparison comparison;
  comparison.rules = rules_for(reference, submission);
  const MlperfRules& rules = comparison.rules;
  std::vector<std::string> names;
  std::vector<ReferencePoint> points;
  for (const RunGroup& group : reference) {
    names.push_back(group.name);
    ReferencePoint point;
    point.name = group.name;
    point.benchmark = group.benchmark;
    point.batch = group.batch;
    point.to_converge = values_of(group, rules);
    points.push_back(std::move(point));
  }
  comparison.reference = fmt::format("{}", fmt::join(names, ", "));
  comparison.submission = submission.name;
  const Submission theirs{submission.name, submission.batch, values_of(submission, rules)};
  comparison.judgement = judge_mlperf(std::move(points), theirs, rules);
  comparison.own = own_verdict(reference, submission, comparison.judgement, rules, given);
  comparison.notes = notes_on(reference, submission);
  return comparison;
}

std::vector<MlperfComparison> compare_cells(const MatchedArms& matched, const Given& given) {
  std::vector<MlperfComparison> comparisons;
  for (const ArmPair& pair : matched.pairs) {
    comparisons.push_back(
        compare_groups({group_of_arm(pair.reference, given)}, group_of_arm(pair.cell, given), given));
    comparisons.back().differences = pair.differences;
  }
  for (const std::string& alone : matched.alone) comparisons.back().notes.push_back("not compared: " + alone);
  return comparisons;
}

}  // namespace lockstep
