#include "harness/verdict/stats/mlperf/run_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "harness/base/errors.h"
#include "harness/verdict/stats/mlperf/mllog.h"
#include "harness/verdict/stats/mlperf/mlperf.h"
#include "harness/verdict/stats/mlperf/mlperf_log.h"

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

/// Points of another name than the rules', and in steps where the rules count samples, are made like the others.
RunGroup group_of_point(const ReferenceRecord& record) {
  RunGroup group{record.name, canonical_benchmark(record.benchmark), record.batch, record.epochs, record.samples,
                 {}, ""};
  if (group.benchmark == record.benchmark) return group;
  group.note = fmt::format("{} calls the benchmark {} by the name {}", record.name, group.benchmark, record.benchmark);
  if (points_count_steps(record.benchmark) && group.samples.empty()) {
    group.samples = std::move(group.epochs);
    group.epochs.clear();
    for (double& steps : group.samples) steps *= static_cast<double>(record.batch);
    group.note += " and counts steps, as rules 3.1.0 did; taken as steps times batch size";
  }
  return group;
}

std::vector<RunGroup> groups_of_points(const std::string& path) {
  std::vector<RunGroup> groups;
  for (const ReferenceRecord& record : parse_reference_points(read_whole(path), path))
    groups.push_back(group_of_point(record));
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
  RunGroup group{place, canonical_benchmark(logs.front().benchmark), logs.front().batch, {}, {}, {}, ""};
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
    if (canonical_benchmark(log.benchmark) != canonical_benchmark(benchmark)) {
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

}  // namespace lockstep
