#include "harness/answer/stats/mllog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/answer/results/words.h"
#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

/// The trainer under a name that is none of MLPerf's.
std::string benchmark_of(const RunConfig& config) { return "lockstep_" + config.trainer; }

/// Step of the first evaluation that reaches the target; nothing if none does.
std::optional<int64_t> step_of_target(const std::vector<std::pair<int64_t, double>>& evaluations,
                                      double target, bool higher_is_better) {
  for (const auto& [step, value] : evaluations) {
    if (higher_is_better ? value >= target : value <= target) return step;
  }
  return std::nullopt;
}

/// Writes one run's events in order.
class LogWriter {
 public:
  explicit LogWriter(const MllogSource& source) : source_(source) {}

  void event(int64_t step, const char* type, const char* key, const ordered_json& value,
             ordered_json metadata = ordered_json::object()) {
    const double share =
        source_.steps > 0 ? static_cast<double>(step) / static_cast<double>(source_.steps) : 0.0;
    const auto time = source_.started_ms + static_cast<int64_t>(std::llround(share * source_.seconds * 1000));
    // Their loggers say which line of which file logged it; the file is all that there is.
    if (!metadata.contains("file")) metadata["file"] = "lockstep";
    const ordered_json line = {{"namespace", ""}, {"time_ms", time}, {"event_type", type},
                               {"key", key},      {"value", value},  {"metadata", metadata}};
    text_ += ":::MLLOG " + line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  }
  void point(const char* key, const ordered_json& value) { event(0, "POINT_IN_TIME", key, value); }

  ordered_json progress(int64_t step) const {
    ordered_json metadata = {{"samples_count", step * source_.batch}, {"step_num", step}};
    if (source_.train_samples > 0)
      metadata["epoch_num"] =
          static_cast<double>(step * source_.batch) / static_cast<double>(source_.train_samples);
    return metadata;
  }
  std::string take() { return std::move(text_); }

 private:
  const MllogSource& source_;
  std::string text_;
};

void write_opening(const MllogSource& s, LogWriter& log) {
  log.point("cache_clear", true);
  log.event(0, "INTERVAL_START", "init_start", nullptr);
  log.point("submission_benchmark", s.benchmark);
  log.point("submission_org", "lockstep");
  log.point("submission_division", "open");
  log.point("submission_status", "research");
  log.point("submission_platform", s.platform);
  log.point("seed", s.seed);
  log.point("global_batch_size", s.batch);
  log.point("gradient_accumulation_steps", s.accumulation);
  log.point("opt_name", s.optimizer);
  log.point("opt_base_learning_rate", s.learning_rate);
  log.point("opt_learning_rate_warmup_steps", s.warmup_steps);
  if (s.train_samples > 0) log.point("train_samples", s.train_samples);
  if (s.eval_samples > 0) log.point("eval_samples", s.eval_samples);
  log.event(0, "INTERVAL_END", "init_stop", nullptr);
}

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

std::string reference_points_json(const std::vector<ReferenceRecord>& records) {
  ordered_json document = ordered_json::object();
  for (const ReferenceRecord& record : records) {
    ordered_json hyperparameters = ordered_json::object();
    for (const auto& [key, value] : record.hyperparameters) hyperparameters[key] = parse_ordered_json(value);
    ordered_json& entry = document[record.name];
    entry = {{"Benchmark", record.benchmark}, {"BS", record.batch}, {"Hyperparams", hyperparameters}};
    if (!record.epochs.empty()) entry["Epochs to converge"] = record.epochs;
    if (!record.samples.empty()) entry["samples to converge"] = record.samples;
  }
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string mllog_text(const MllogSource& source) {
  LogWriter log(source);
  write_opening(source, log);
  log.event(0, "INTERVAL_START", "run_start", nullptr);
  log.event(0, "INTERVAL_START", "block_start", nullptr, log.progress(0));
  const auto reached = step_of_target(source.evaluations, source.target, source.higher_is_better);
  int64_t last = 0;
  for (const auto& [step, value] : source.evaluations) {
    ordered_json metadata = log.progress(step);
    log.event(step, "INTERVAL_START", "eval_start", nullptr, metadata);
    ordered_json with_metric = metadata;
    with_metric["metric"] = source.metric;
    with_metric["target"] = source.target;
    log.event(step, "POINT_IN_TIME", source.higher_is_better ? "eval_accuracy" : "eval_error", value,
              with_metric);
    log.event(step, "INTERVAL_END", "eval_stop", nullptr, metadata);
    last = step;
    if (reached == step) break;
  }
  if (!reached) last = source.steps;
  ordered_json end = log.progress(last);
  log.event(last, "INTERVAL_END", "block_stop", nullptr, end);
  end["status"] = reached ? "success" : "aborted";
  // A run that died has no end; their readers count it among those that did not converge.
  if (reached || source.finished) log.event(last, "INTERVAL_END", "run_stop", nullptr, end);
  return log.take();
}

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
