#include "harness/verdict/stats/mlperf/mlperf_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "harness/base/errors.h"
#include "harness/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kToken = ":::MLLOG ";
constexpr std::size_t kMostProblems = 20;

/// Above 0 and within what a double counts exactly.
bool is_batch_size(const json& value) {
  constexpr double kMost = 9007199254740992.0;
  return value.is_number() && value.get<double>() >= 1 && value.get<double>() <= kMost;
}

/// Logs are mostly ASCII, and their readers take them for Latin-1.
std::string from_latin1(std::string_view text) {
  std::string utf8;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      utf8 += c;
    } else {
      utf8 += static_cast<char>(0xC0 | (byte >> 6));
      utf8 += static_cast<char>(0x80 | (byte & 0x3F));
    }
  }
  return utf8;
}

class LogReader {
 public:
  explicit LogReader(const std::string& file) { run_.file = file; }

  void read_line(std::string_view line, int number) {
    line_ = number;
    const std::size_t at = line.rfind(kToken);
    if (at == std::string_view::npos) return;  // Logs hold much else.
    ++lines_;
    const std::string_view text = line.substr(at + kToken.size());
    JsonProblem problem;
    json event = parse_json(text, &problem);
    if (event.is_discarded()) event = parse_json(from_latin1(text), &problem);
    if (event.is_discarded())
      return complain("the line is cut, or what follows :::MLLOG is " + problem.message);
    if (!event.is_object()) return complain("what follows :::MLLOG is not an object");
    for (const char* key : {"key", "value", "metadata"}) {
      if (!event.contains(key)) return complain(fmt::format("the event has no \"{}\"", key));
    }
    if (!event["key"].is_string()) return complain("\"key\" is not a string");
    take(event["key"].get<std::string>(), event["value"], event["metadata"]);
  }

  MllogRun finish() {
    line_ = 0;
    if (lines_ == 0) {
      complain("there is no :::MLLOG line");
    } else {
      if (run_.benchmark.empty()) complain("the key submission_benchmark is missing");
      if (run_.batch == 0) complain("the key global_batch_size is missing");
      if (run_.evaluations.empty() && run_.success)
        complain("the key eval_accuracy is missing: the run ends with success and was never evaluated");
    }
    if (!problems_.empty()) throw ConfigError(problems_);
    return run_;
  }

 private:
  void complain(const std::string& message) {
    if (problems_.size() < kMostProblems)
      problems_.push_back({run_.file, line_, line_ > 0 ? 1 : 0, message, ""});
  }

  void take(const std::string& key, const json& value, const json& metadata) {
    if (key == "submission_benchmark") {
      if (!value.is_string()) return complain("submission_benchmark is not a string");
      run_.benchmark = value.get<std::string>();
    } else if (key == "global_batch_size") {
      if (!is_batch_size(value)) return complain("global_batch_size is not a count");
      run_.batch = value.get<int64_t>();
    } else if (key == "seed") {
      if (value.is_number_integer()) run_.seed = value.get<int64_t>();
    } else if (key == "eval_accuracy" || key == "eval_error") {
      take_evaluation(key, value, metadata);
    } else if (key == "run_stop") {
      run_.stopped = true;
      if (!metadata.is_object() || !metadata.contains("status")) return complain("run_stop has no status");
      run_.success = metadata["status"] == "success";
    }
  }

  void take_evaluation(const std::string& key, const json& value, const json& metadata) {
    if (!value.is_number()) return complain(key + " is not a number");
    MllogEvaluation evaluation;
    evaluation.line = line_;
    evaluation.value = value.get<double>();
    const auto number = [&](const char* name) -> std::optional<double> {
      if (!metadata.is_object() || !metadata.contains(name) || !metadata[name].is_number())
        return std::nullopt;
      return metadata[name].get<double>();
    };
    evaluation.epochs = number("epoch_num");
    evaluation.samples = number("samples_count");
    if (metadata.is_object() && metadata.contains("metric") && metadata["metric"].is_string())
      evaluation.metric = metadata["metric"].get<std::string>();
    if (!evaluation.epochs && !evaluation.samples)
      return complain(key + " has neither epoch_num nor samples_count in its metadata");
    run_.evaluations.push_back(std::move(evaluation));
  }

  MllogRun run_;
  std::vector<ConfigProblem> problems_;
  int line_ = 0, lines_ = 0;
};

double count_of(const MllogRun& run, const MllogEvaluation& evaluation, bool samples) {
  const std::optional<double>& count = samples ? evaluation.samples : evaluation.epochs;
  if (!count) {
    const char* key = samples ? "samples_count" : "epoch_num";
    throw ConfigError(std::vector<ConfigProblem>{
        {run.file, evaluation.line, 1,
         fmt::format("the evaluation's metadata has no {}, in which {} is counted", key, run.benchmark),
         ""}});
  }
  // Their reader rounds epochs, and points are made of such.
  return samples ? *count : std::round(*count * 1000) / 1000;
}

/// The one benchmark with two criteria, logged apart from each other: the first evaluation that meets both.
double convergence_of_two_metrics(const MllogRun& run) {
  constexpr double kMostFid = 90.0, kLeastClip = 0.15;
  std::map<double, std::pair<bool, bool>> met;
  for (const MllogEvaluation& evaluation : run.evaluations) {
    auto& [fid, clip] = met[count_of(run, evaluation, true)];
    if (evaluation.metric == "FID") fid = evaluation.value <= kMostFid;
    if (evaluation.metric == "CLIP") clip = evaluation.value >= kLeastClip;
  }
  for (const auto& [samples, both] : met) {
    if (both.first && both.second) return samples;
  }
  return kNeverConverged;
}

std::vector<double> numbers_of(const json& record, const char* key, const std::string& where) {
  std::vector<double> numbers;
  if (!record.contains(key)) return numbers;
  if (!record[key].is_array()) throw ConfigError(fmt::format("{}: \"{}\" is not a list", where, key));
  for (const json& value : record[key]) {
    if (!value.is_number() || !(value.get<double>() > 0))
      throw ConfigError(
          fmt::format("{}: \"{}\" holds {}, which is not a positive number", where, key, value.dump()));
    numbers.push_back(value.get<double>());
  }
  return numbers;
}

ReferenceRecord record_of(const std::string& name, const json& json, const std::string& file_name) {
  const std::string where = file_name + ": " + name;
  if (!json.is_object()) throw ConfigError(where + ": is not an object");
  for (const char* key : {"Benchmark", "BS"}) {
    if (!json.contains(key)) throw ConfigError(fmt::format("{}: the key \"{}\" is missing", where, key));
  }
  if (!json["Benchmark"].is_string()) throw ConfigError(where + ": \"Benchmark\" is not a string");
  if (!is_batch_size(json["BS"])) throw ConfigError(where + ": \"BS\" is not a batch size");
  ReferenceRecord record;
  record.name = name;
  record.benchmark = json["Benchmark"].get<std::string>();
  record.batch = json["BS"].get<int64_t>();
  record.epochs = numbers_of(json, "Epochs to converge", where);
  record.samples = numbers_of(json, "samples to converge", where);
  if (record.epochs.empty() && record.samples.empty())
    throw ConfigError(where +
                      ": the key \"Epochs to converge\" (or \"samples to converge\") is missing or empty");
  if (json.contains("Hyperparams") && json["Hyperparams"].is_object()) {
    for (const auto& [key, value] : json["Hyperparams"].items())
      record.hyperparameters.emplace_back(key, value.dump());
  }
  return record;
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
    text_ += std::string(kToken) + line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
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

}  // namespace

MllogRun parse_mllog(const std::string& text, const std::string& file_name) {
  LogReader reader(file_name);
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    reader.read_line(std::string_view(text).substr(begin, end - begin), ++number);
    begin = end + 1;
  }
  return reader.finish();
}

bool counts_samples(const MllogRun& run) {
  return std::ranges::all_of(run.evaluations, [](const MllogEvaluation& e) { return e.samples.has_value(); });
}

double convergence_of(const MllogRun& run, bool samples) {
  if (!run.success) return kNeverConverged;
  if (canonical_benchmark(run.benchmark) == "stable_diffusion") return convergence_of_two_metrics(run);
  return count_of(run, run.evaluations.back(), samples);
}

std::vector<ReferenceRecord> parse_reference_points(const std::string& text, const std::string& file_name) {
  JsonProblem problem;
  // In the file's order: of two points at one batch the first counts.
  const ordered_json document = parse_ordered_json(text, &problem);
  if (!problem.message.empty()) {
    throw ConfigError(
        std::vector<ConfigProblem>{{file_name, problem.line, problem.column,
                                    problem.message + ": reference points cannot be read", ""}});
  }
  if (!document.is_object() || document.empty())
    throw ConfigError(file_name + ": has no reference points: an object of records is expected");
  std::vector<ReferenceRecord> records;
  for (const auto& [name, record] : document.items()) records.push_back(record_of(name, json(record), file_name));
  return records;
}

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

std::optional<int64_t> step_of_target(const std::vector<std::pair<int64_t, double>>& evaluations,
                                      double target, bool higher_is_better) {
  for (const auto& [step, value] : evaluations) {
    if (higher_is_better ? value >= target : value <= target) return step;
  }
  return std::nullopt;
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

}  // namespace lockstep
