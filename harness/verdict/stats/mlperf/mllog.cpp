#include "harness/verdict/stats/mlperf/mllog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/base/atomic_file.h"
#include "harness/base/errors.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/layout_name.h"
#include "harness/verdict/config/learning_rate.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/results/metric_names.h"

namespace lockstep {
namespace {

/// Rows of the training and the test part; 0 where the data cannot be read here.
struct DataSizes {
  int64_t train = 0, test = 0;
};

DataSizes sizes_of(const RunConfig& config) {
  try {
    const SampleCounts samples = spec_of(config).inspect_data(config).samples;
    return {samples.train, samples.test};
  } catch (const ConfigError&) {
    return {};  // Samples are counted without it; only epochs are not.
  }
}

/// Configs with equal keys read the same rows.
std::string data_key(const RunConfig& config) {
  std::string key;
  for (const auto& [name, value] : config_fields(config)) {
    if (name.starts_with("data.")) key += name + "=" + value + "\n";
  }
  return key;
}

int64_t milliseconds_of(const std::string& utc) {
  std::tm parts{};
  if (::strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) == nullptr) return 0;
  return static_cast<int64_t>(::timegm(&parts)) * 1000;
}

/// The rate after warm-up and before any decay.
double base_rate(RunConfig config) {
  config.schedule = Schedule::constant;
  return learning_rate(config, 0);
}

std::string field_of(const RunConfig& config, const std::string& key) {
  for (const auto& [name, value] : config_fields(config)) {
    if (name == key) return value;
  }
  return "";
}

std::vector<std::pair<int64_t, double>> evaluations_of(const ArmRun& run, const std::string& metric) {
  std::vector<std::pair<int64_t, double>> evaluations;
  const auto found = run.evidence.curves.find(metric);
  if (run.evidence.failure || found == run.evidence.curves.end()) return evaluations;
  for (std::size_t i = 0; i < found->second.steps.size(); ++i)
    evaluations.emplace_back(found->second.steps[i], found->second.values[i]);
  return evaluations;
}

MllogSource source_of(const ArmRun& run, const TimedMetric& timed, const DataSizes& sizes) {
  const RunConfig& config = run.record.config;
  MllogSource source;
  source.benchmark = benchmark_of(config);
  const auto processor = run.record.provenance.find("processor");
  source.platform = fmt::format(
      "{} {} on {}", layout_name(config.layout), field_of(config, "ranks"),
      processor == run.record.provenance.end() ? "unknown processor" : processor->second);
  source.optimizer = field_of(config, "optimizer");
  source.metric = timed.metric;
  source.seed = config.seed;
  source.batch = config.layout.global_batch();
  source.accumulation = config.accumulation;
  source.steps = steps_to_run(config);
  source.learning_rate = base_rate(config);
  source.warmup_steps = config.warmup_steps;
  source.target = timed.target;
  source.higher_is_better = timed.higher_is_better;
  source.train_samples = sizes.train;
  source.eval_samples = sizes.test;
  source.started_ms = milliseconds_of(run.record.started);
  source.seconds = run.evidence.seconds;
  source.finished = !run.evidence.failure;
  source.evaluations = evaluations_of(run, timed.metric);
  return source;
}

/// A cell's name as a folder's: "8x3-global-lr_scale-0.125".
std::string folder_name(const std::string& name, std::set<std::string>& taken) {
  std::string folder;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    folder += plain ? c : '-';
  }
  std::string unique = folder;
  for (int i = 2; !taken.insert(unique).second; ++i) unique = fmt::format("{}-{}", folder, i);
  return unique;
}

ReferenceRecord record_of(const Arm& arm, const std::vector<double>& samples, const DataSizes& sizes) {
  ReferenceRecord record;
  record.benchmark = benchmark_of(arm.config);
  record.batch = arm.config.layout.global_batch();
  record.name = fmt::format("{}_ref_{}", record.benchmark, record.batch);
  record.samples = samples;
  if (sizes.train > 0) {
    for (const double value : samples)
      record.epochs.push_back(std::round(value / static_cast<double>(sizes.train) * 1000) / 1000);
  }
  const auto text = [](const std::string& value) { return nlohmann::json(value).dump(); };
  record.hyperparameters = {{"cell", text(arm.name)},
                            {"optimizer", text(field_of(arm.config, "optimizer"))},
                            {"opt_base_learning_rate", nlohmann::json(base_rate(arm.config)).dump()},
                            {"gradient_accumulation_steps", std::to_string(arm.config.accumulation)}};
  return record;
}

/// Makes the folder anew: seeds of an earlier call would count as runs of this one.
void make_anew(const std::string& folder, Files& files) {
  if (const auto error = files.remove_all(folder)) {
    throw MachineError(folder + ": cannot remove what an earlier call left: " + error.message());
  }
  if (const auto error = files.make_folders(folder)) {
    throw MachineError(folder + ": cannot be created: " + error.message());
  }
}

}  // namespace

std::string benchmark_of(const RunConfig& config) { return "lockstep_" + config.trainer; }

TimedMetric timed_metric(const Arm& arm, const Given& given) {
  TimedMetric timed;
  const Primary declared = arm.primary.value_or(Primary{});
  timed.metric = given.metric.empty() ? declared.metric : given.metric;
  const bool other_metric = timed.metric != declared.metric;
  if (!given.target && (declared.target == 0 || other_metric)) {
    throw ConfigError(
        fmt::format("{}: no target value of {} is declared; give --target X, or set primary.target",
                    title_of(arm), timed.metric));
  }
  timed.target = given.target.value_or(declared.target);
  const std::optional<bool> higher = higher_is_better(timed.metric);
  if (!higher)
    throw ConfigError(fmt::format("--metric: {} has no better side that could be reached", timed.metric));
  timed.higher_is_better = *higher;
  return timed;
}

std::vector<double> samples_to_target(const Arm& arm, const TimedMetric& timed) {
  if (!arm.missing.empty()) {
    throw ConfigError(
        fmt::format("{}: the runs of {} seeds are not there any more", title_of(arm), arm.missing.size()));
  }
  std::vector<double> samples;
  for (const auto& [seed, run] : arm.runs) {
    const auto evaluations = evaluations_of(run, timed.metric);
    if (evaluations.empty() && !run.evidence.failure)
      throw ConfigError(fmt::format("{}: was never evaluated for {}", run.dir, timed.metric));
    const auto step = step_of_target(evaluations, timed.target, timed.higher_is_better);
    samples.push_back(step ? static_cast<double>(*step * arm.config.layout.global_batch()) : kNeverConverged);
  }
  return samples;
}

std::vector<std::string> write_mllog(const std::string& out_dir, const Given& given, Files& files) {
  std::vector<std::string> written;
  const auto write = [&](const std::string& path, const std::string& content) {
    write_file_atomically(path, content, files);
    written.push_back(path);
  };
  std::set<std::string> folders;
  std::map<std::string, DataSizes> sizes;  // Cells of a matrix mostly share their data.
  for (const Arm& arm : read_all_arms(out_dir, given.metric)) {
    const TimedMetric timed = timed_metric(arm, given);
    const std::vector<double> samples = samples_to_target(arm, timed);
    const std::string data = data_key(arm.config);
    if (!sizes.contains(data)) sizes[data] = sizes_of(arm.config);
    const std::string folder = out_dir + "/mllog/" + folder_name(arm.name, folders);
    make_anew(folder, files);
    for (const auto& [seed, run] : arm.runs) {
      write(fmt::format("{}/result_{}.txt", folder, seed), mllog_text(source_of(run, timed, sizes[data])));
    }
    const bool all = std::ranges::all_of(samples, [](double v) { return std::isfinite(v); });
    if (!all) continue;
    write(fmt::format("{}/rcps_{}.json", folder, benchmark_of(arm.config)),
          reference_points_json({record_of(arm, samples, sizes[data])}));
  }
  return written;
}

}  // namespace lockstep
