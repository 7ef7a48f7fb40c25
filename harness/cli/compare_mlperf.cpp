#include "harness/cli/compare_mlperf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <ostream>

#include "harness/base/clean_text.h"
#include "harness/base/counted.h"
#include "harness/base/errors.h"
#include "harness/cli/commands.h"
#include "harness/cli/compare.h"
#include "harness/mlperf/mllog.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> result_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("result_") && name.ends_with(".txt")) files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

std::vector<RunGroup> groups_of_points(const std::string& path) {
  std::vector<RunGroup> groups;
  for (const ReferenceRecord& record : parse_reference_points(read_whole(path), path))
    groups.push_back({record.name, record.benchmark, record.batch, record.epochs, record.samples, {}});
  return groups;
}

/// All logs that can be read, and every problem of those that cannot.
std::vector<MllogRun> read_logs(const std::vector<std::string>& files) {
  std::vector<MllogRun> logs;
  std::vector<ConfigProblem> problems;
  for (const std::string& file : files) {
    try {
      logs.push_back(parse_mllog(read_whole(file), file));
    } catch (const ConfigError& error) {
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
  return logs;
}

RunGroup group_of_logs(const std::string& place, const std::vector<MllogRun>& logs) {
  RunGroup group{place, logs.front().benchmark, logs.front().batch, {}, {}, {}};
  const auto rules = mlperf_rules(group.benchmark);
  const bool all_samples = std::ranges::all_of(logs, counts_samples);
  const bool all_epochs = std::ranges::all_of(logs, [](const MllogRun& log) {
    return std::ranges::all_of(log.evaluations,
                               [](const MllogEvaluation& e) { return e.epochs.has_value(); });
  });
  // For each MLPerf benchmark one unit counts, samples or epochs; a log that lacks it is refused by name.
  const bool samples = rules ? rules->samples : all_samples || !all_epochs;
  const bool epochs = rules ? !rules->samples : all_epochs;
  for (const MllogRun& log : logs) {
    if (samples) group.samples.push_back(convergence_of(log, true));
    if (epochs) group.epochs.push_back(convergence_of(log, false));
  }
  return group;
}

bool has_counts(const RunGroup& group, bool samples) {
  return !(samples ? group.samples : group.epochs).empty();
}

/// Theirs, or of a benchmark that they do not know: as many runs as there are, in samples if all count them.
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
  const std::string size = fmt::format("{} to converge differ by {:+.6g} ({:+.6g} to {:+.6g})", unit, d.mean,
                                       d.interval.low, d.interval.high);
  if (!given.margin) {
    own.sentence =
        size + "; no margin in that unit is declared (--margin), without which nothing is equivalent.";
    return;
  }
  own.verdict = decide_unpaired(d, *given.margin);
  own.sentence = fmt::format("{} against a margin of {}.", size, *given.margin);
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
                                         "No runs at batch {} stand behind the reference, so there is no "
                                         "interval to compare with.",
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
    throw ConfigError(fmt::format("{} is of the benchmark {}, {} of {}: there is nothing to compare",
                                  submission.name, submission.benchmark, group.name, group.benchmark));
  }
}

}  // namespace

bool is_mlperf_files(const std::string& path) {
  return fs::is_regular_file(path) || (fs::is_directory(path) && !result_files(path).empty());
}

std::vector<RunGroup> read_mlperf_files(const std::string& path) {
  const bool is_file = fs::is_regular_file(path);
  if (is_file && path.ends_with(".json")) return groups_of_points(path);
  const std::vector<std::string> files = is_file ? std::vector<std::string>{path} : result_files(path);
  std::map<int64_t, std::vector<MllogRun>> by_batch;
  std::string benchmark;
  for (MllogRun& log : read_logs(files)) {
    if (benchmark.empty()) benchmark = log.benchmark;
    if (log.benchmark != benchmark) {
      throw ConfigError(fmt::format("{}: is of the benchmark {}, other logs beside it of {}", log.file,
                                    log.benchmark, benchmark));
    }
    by_batch[log.batch].push_back(std::move(log));
  }
  std::vector<RunGroup> groups;
  for (const auto& [batch, logs] : by_batch) {
    groups.push_back(
        group_of_logs(by_batch.size() == 1 ? path : fmt::format("{}, batch {}", path, batch), logs));
  }
  return groups;
}

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
  const auto runs = static_cast<int>(theirs.to_converge.size());
  if (runs != rules.runs) {
    comparison.notes.push_back(
        fmt::format("a submission of {} has {} runs, this one {}", rules.benchmark, rules.runs, runs));
  }
  return comparison;
}

namespace {

/// Every cell or file of the other side against the same reference points.
std::vector<MlperfComparison> against_points(const std::vector<RunGroup>& reference,
                                             const std::vector<RunGroup>& submissions, const Given& given) {
  std::vector<MlperfComparison> comparisons;
  for (const RunGroup& submission : submissions)
    comparisons.push_back(compare_groups(reference, submission, given));
  return comparisons;
}

RunGroup group_of_arm(const Arm& arm, const Given& given) {
  RunGroup group;
  group.name = title_of(arm);
  group.benchmark = benchmark_of(arm.config);
  group.batch = arm.config.layout.global_batch();
  group.samples = samples_to_target(arm, timed_metric(arm, given));
  group.arm = arm;
  return group;
}

std::vector<RunGroup> groups_of(const std::string& word, const Given& given) {
  if (is_mlperf_files(word) && !is_output_folder(word)) return read_mlperf_files(word);
  std::vector<RunGroup> groups;
  for (const Arm& arm : read_arms(word, given.metric)) groups.push_back(group_of_arm(arm, given));
  return groups;
}

std::vector<MlperfComparison> compare_cells(const CompareCommandOptions& options, const Given& given) {
  MatchedArms matched =
      match_arms(read_arms(options.run_a, given.metric), read_arms(options.run_b, given.metric));
  require_same_question(matched, given, options.across);
  std::vector<MlperfComparison> comparisons;
  for (const ArmPair& pair : matched.pairs) {
    comparisons.push_back(
        compare_groups({group_of_arm(pair.reference, given)}, group_of_arm(pair.cell, given), given));
    comparisons.back().differences = pair.differences;
  }
  for (const std::string& alone : matched.alone) comparisons.back().notes.push_back("not compared: " + alone);
  return comparisons;
}

}  // namespace

int compare_mlperf_command(const CompareCommandOptions& options, const Console& console) {
  const Given given = given_of(options);
  const auto has_cells = [](const std::string& word) {
    return is_output_folder(word) || !is_mlperf_files(word);
  };
  std::vector<MlperfComparison> comparisons;
  if (has_cells(options.run_a) && has_cells(options.run_b)) {
    comparisons = compare_cells(options, given);
  } else {
    const std::vector<RunGroup> reference = groups_of(options.run_a, given);
    if (reference.size() > 1 && reference.front().arm)
      throw ConfigError(options.run_a + ": which of its cells is the reference? Name one: " + options.run_a +
                        ":CELL");
    if (fs::is_regular_file(options.run_b) && options.run_b.ends_with(".json"))
      throw ConfigError(options.run_b + ": holds reference points; what is held against them are runs");
    const std::vector<RunGroup> submissions = groups_of(options.run_b, given);
    if (submissions.size() > 1 && !submissions.front().arm)
      throw ConfigError(options.run_b + ": its logs are of several batch sizes; a submission has one");
    comparisons = against_points(reference, submissions, given);
  }
  console.out << (options.json ? clean_json(mlperf_json(comparisons)) : clean_text(mlperf_text(comparisons)));
  std::vector<int> codes;
  for (const MlperfComparison& comparison : comparisons) {
    const MlperfVerdict verdict = comparison.judgement.verdict;
    codes.push_back(verdict == MlperfVerdict::passed   ? kExitAsExpected
                    : verdict == MlperfVerdict::failed ? kExitUnexpected
                                                       : kExitUndecided);
  }
  return worst_exit_code(codes);
}

}  // namespace lockstep
