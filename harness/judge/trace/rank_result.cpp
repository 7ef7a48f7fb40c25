#include "harness/judge/trace/rank_result.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "harness/base/json.h"
#include "harness/base/text.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr int kSchemaVersion = 2;

/// Reads one file; every complaint names it and the key.
class ResultReader {
 public:
  explicit ResultReader(std::string path) : path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& problem) const {
    throw std::runtime_error(path_ + ": " + problem);
  }

  const Json& at(const Json& object, const std::string& key) const {
    const auto found = object.find(key);
    if (found == object.end()) fail("lacks \"" + key + '"');
    return *found;
  }
  /// Takes what the key holds.
  void take(const Json& object, const char* key, std::string& to) const { to = text(object, key); }
  void take(const Json& object, const char* key, std::vector<std::string>& to) const { to = texts(object, key); }
  void take(const Json& object, const char* key, int64_t& to) const { to = integer(object, key); }
  void take(const Json& object, const char* key, int& to) const { to = static_cast<int>(integer(object, key)); }
  void take(const Json& object, const char* key, double& to) const { to = number(at(object, key), key); }
  void take(const Json& object, const char* key, std::vector<int64_t>& to) const {
    to = steps(at(object, key), fmt::format("\"{}\"", key));
  }
  std::string text(const Json& object, const std::string& key) const { return as<std::string>(object, key, "a text"); }
  int64_t integer(const Json& object, const std::string& key) const { return as<int64_t>(object, key, "an integer"); }
  std::vector<std::string> texts(const Json& object, const std::string& key) const {
    const Json& list = at(object, key);
    if (!list.is_array()) fail('"' + key + "\" is not a list");
    auto texts = json_as<std::vector<std::string>>(list);
    if (!texts) fail("an item of \"" + key + "\" is not a text");
    return *std::move(texts);
  }
  double number(const Json& value, const std::string& key) const {
    const std::optional<double> number = number_in_json(value);
    if (!number) fail('"' + key + "\" is not a number");
    return *number;
  }
  double metric(const Json& value, const std::string& key) const {
    if (!value.is_object()) fail("metric \"" + key + "\" is not an object");
    const std::optional<uint64_t> bits = from_hex16(text(value, "bits"));
    if (!bits) fail("the bits of metric \"" + key + "\" are not 16 hex digits");
    return std::bit_cast<double>(*bits);
  }
  Series series(const Json& value, const std::string& key) const {
    if (!value.is_object()) fail("curve \"" + key + "\" is not an object");
    const Json& steps = at(value, "steps");
    const Json& values = at(value, "values");
    if (!steps.is_array() || !values.is_array() || steps.size() != values.size()) {
      fail("curve \"" + key + "\" does not have one value a step");
    }
    Series series{this->steps(steps, "curve \"" + key + '"'), {}};
    for (const Json& each : values) series.values.push_back(number(each, key));
    return series;
  }

 private:
  template <class T>
  T as(const Json& object, const std::string& key, const char* kind) const {
    auto value = json_as<T>(at(object, key));
    if (!value) fail(fmt::format("\"{}\" is not {}", key, kind));
    return *std::move(value);
  }
  std::vector<int64_t> steps(const Json& list, const std::string& of) const {
    auto steps = json_as<std::vector<int64_t>>(list);
    if (!steps) fail("a step of " + of + " is not an integer");
    return *std::move(steps);
  }

  std::string path_;
};

/// Hands each field that every result has to `field`, by its key; those of what a rank saved below.
template <typename Result, typename Field>
void each_field(Result& result, Field field) {
  field("rank", result.rank);
  field("world_size", result.world_size);
  field("config_hash", result.config_hash);
  field("data_hash", result.data_hash);
  field("status", result.status);
  field("error", result.error);
  field("phase", result.phase);
  field("steps_done", result.steps_done);
  field("train_seconds", result.train_seconds);
  field("first_step_seconds", result.first_step_seconds);
  field("communication_seconds", result.communication_seconds);
  field("activation_bytes", result.activation_bytes);
  field("resident_first_bytes", result.resident_first_bytes);
  field("resident_last_bytes", result.resident_last_bytes);
  field("parameters_hash", result.parameters_hash);
  field("step_seconds", result.step_seconds);
  field("communication_share", result.communication_share);
  field("weight_bytes", result.weight_bytes);
  field("received_bytes", result.received_bytes);
}

template <typename Checkpoints, typename Field>
void each_field_saved(Checkpoints& kept, Field field) {
  field("saved", kept.saved);
  field("seconds", kept.seconds);
  field("problems", kept.problems);
  field("resumed_at", kept.resumed_at);
  field("resumed_from", kept.resumed_from);
  field("remarks", kept.remarks);
  field("stop_signal", kept.stop_signal);
  field("stop_seconds", kept.stop_seconds);
}

/// Puts fields into `json`.
auto into(Json& json) {
  return [&json](const char* key, const auto& value) {
    if constexpr (std::is_same_v<decltype(value), const double&>) json[key] = json_number(value);
    else json[key] = value;
  };
}

}  // namespace

std::string problem_words(const CheckpointsOfRank& checkpoints) {
  if (checkpoints.problems.empty()) return "";
  const std::size_t failed = checkpoints.problems.size(), all = failed + checkpoints.saved.size();
  const int64_t newest = checkpoints.saved.empty() ? checkpoints.resumed_at : checkpoints.saved.back();
  return fmt::format("{} of {} failed, {}{}; {}", failed, counted(static_cast<int64_t>(all), "save"), failed > 1 ? "the first: " : "",
                     checkpoints.problems.front(),
                     newest > 0 ? fmt::format("the newest checkpoint is of step {}", newest) : std::string("no checkpoint stands"));
}

void write_rank_result(const std::string& path, const RankResult& result, Files& files) {
  Json json = {{"schema_version", kSchemaVersion},
               {"faults_acted", result.faults_acted},
               {"metrics", Json::object()},
               {"curves", Json::object()}};
  each_field(result, into(json));
  for (const auto& [name, value] : result.metrics) json["metrics"][name] = json_number_and_bits(value);
  for (const auto& [name, series] : result.curves) {
    LOCKSTEP_CHECK(series.steps.size() == series.values.size(), "a curve needs one value a step: " + name);
    Json values = Json::array();
    for (double value : series.values) values.push_back(json_number(value));
    json["curves"][name] = {{"steps", series.steps}, {"values", std::move(values)}};
  }
  if (result.checkpoints.any()) each_field_saved(result.checkpoints, into(json["checkpoints"]));
  if (!result.transport.empty()) json["carrier"] = {{"name", result.transport}, {"certified_by", result.certified_by}};
  seal(json);
  write_file_atomically(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n", files);
}

RankResult read_rank_result(const std::string& path) {
  const ResultReader reader(path);
  const FileText file = read_file(path);
  if (!file) reader.fail(file.problem);
  JsonProblem problem;
  const Json json = parse_json(file.text, &problem);
  if (!problem.message.empty()) reader.fail(problem.text());
  if (!json.is_object()) reader.fail("not a JSON object");
  const int64_t version = reader.integer(json, "schema_version");
  if (version != kSchemaVersion) {
    reader.fail(fmt::format("schema version {}; this build reads version {}", version, kSchemaVersion));
  }
  if (const std::string problem = seal_problem(json); !problem.empty()) {
    throw std::runtime_error(path + " " + problem);
  }
  RankResult result;
  each_field(result, [&](const char* key, auto& value) { reader.take(json, key, value); });
  // Results from before faults were watched have none.
  if (json.contains("faults_acted")) result.faults_acted = reader.texts(json, "faults_acted");
  if (const auto kept = json.find("checkpoints"); kept != json.end()) {
    if (!kept->is_object()) reader.fail("\"checkpoints\" is not an object");
    each_field_saved(result.checkpoints, [&](const char* key, auto& value) { reader.take(*kept, key, value); });
  }
  if (const auto transport = json.find("carrier"); transport != json.end()) {
    if (!transport->is_object()) reader.fail("\"transport\" is not an object");
    result.transport = reader.text(*transport, "name");
    result.certified_by = reader.text(*transport, "certified_by");
  }
  for (const auto& [name, value] : reader.at(json, "metrics").items())
    result.metrics[name] = reader.metric(value, name);
  for (const auto& [name, value] : reader.at(json, "curves").items())
    result.curves[name] = reader.series(value, name);
  return result;
}

namespace {

std::vector<std::string> texts_in(const Json& json, const char* key) {
  std::vector<std::string> all;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return all;
  for (const Json& each : *found)
    if (each.is_string()) all.push_back(each.get<std::string>());
  return all;
}

template <class T>
T value_or(const Json& json, const char* key, T otherwise) {
  const auto found = json.find(key);
  return found == json.end() ? otherwise : json_as<T>(*found).value_or(otherwise);
}

/// A count that can be added to others; 0 where there is none.
int64_t count_in(const Json& json, const char* key) {
  return std::clamp<int64_t>(value_or<int64_t>(json, key, 0), 0, std::numeric_limits<int32_t>::max());
}

std::string word_of(const Unrecorded& each) {
  return fmt::format("{} took {}{} that {} not recorded", each.what, each.at_least ? "at least " : "", counted(each.steps, "step"), each.steps == 1 ? "is" : "are");
}

std::string words_of(const std::vector<Unrecorded>& all) {
  constexpr std::size_t kMost = 3;
  std::string words;
  int64_t more = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i < kMost) words += (i == 0 ? "" : ", ") + word_of(all[i]);
    else more += all[i].steps;
  }
  return more == 0 ? words : fmt::format("{}, and {} others {}", words, all.size() - kMost, counted(more, "step"));
}

/// Of the ranks' ends the one that the others follow from: an error of its own comes before a lost connection, an earlier one before a later one.
bool comes_before(const ProbeEnd& a, const ProbeEnd& b) {
  return a.of_others != b.of_others ? !a.of_others : a.at < b.at;
}

}  // namespace

ProbeReport read_probe_report(const std::string& dir, int rank) {
  ProbeReport report;
  const FileText file = read_file(fmt::format("{}/rank-{}.probe.json", dir, rank), kMostConfigBytes);
  if (file.missing) return report;
  report.there = true;
  JsonProblem problem;
  const Json json = file ? parse_json(file.text, &problem) : Json();
  report.problem = !file ? file.problem : !problem.message.empty() ? problem.text() : json.is_object() ? "" : "is no JSON object";
  if (!report.problem.empty()) return report;
  report.tier = value_or<std::string>(json, "tier", "");
  report.torch = value_or<std::string>(json, "torch", "");
  report.wrapper = value_or<std::string>(json, "wrapper", "none");
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, bool*>>{{"samples", &report.samples}, {"loss", &report.loss}, {"row_losses", &report.row_losses},
                                   {"done", &report.done}})
    *value = value_or(json, key, false);
  report.steps = count_in(json, "steps");
  report.world_size = std::max(value_or(json, "world_size", 1), 1);
  report.metrics = texts_in(json, "metrics");
  report.notes = texts_in(json, "notes");
  if (value_or(json, "dropout", false))
    report.notes.emplace_back("the model has dropout: each rank draws its own, so that another layout computes other numbers; compare without it");
  report.seconds = value_or(json, "seconds", 0.0);
  report.probe_seconds = value_or(json, "probe_seconds", 0.0);
  if (const auto all = json.find("unrecorded"); all != json.end() && all->is_array()) {
    for (const Json& each : *all)
      if (each.is_object() && count_in(each, "steps") > 0)
        report.unrecorded.push_back({value_or<std::string>(each, "what", "something else"), count_in(each, "steps"), !value_or(each, "done", false)});
  }
  if (const auto led = json.find("led"); led != json.end() && led->is_object()) {
    report.led = value_or<std::vector<int64_t>>(*led, "steps", {});
    report.led_problem = value_or<std::string>(*led, "problem", "");
    if (const auto begins = led->find("begins"); begins != led->end() && begins->is_object())
      report.other_start = value_or<std::map<std::string, double>>(*begins, "differ", {});
    using Changed = std::map<std::string, std::map<std::string, double>>;
    for (const auto& [step, tensors] : value_or<Changed>(*led, "changed", {}))
      report.changed_after[std::strtoll(step.c_str(), nullptr, 10)] = tensors;
    for (const auto& [step, shares] : value_or<std::map<std::string, std::vector<std::vector<double>>>>(*led, "averaged", {}))
      report.averaged[std::strtoll(step.c_str(), nullptr, 10)] = shares;
  }
  report.casts = texts_in(json, "casts");
  report.gathers = texts_in(json, "gathers");
  if (const auto narrow = json.find("narrow"); narrow != json.end() && narrow->is_object()) {
    report.narrow = texts_in(*narrow, "operations");
    for (const auto& [step, names] : value_or<std::map<std::string, std::vector<std::string>>>(*narrow, "gradients", {}))
      report.narrow_gradients[std::strtoll(step.c_str(), nullptr, 10)] = names;
  }
  if (const auto end = json.find("ended"); end != json.end() && end->is_object())
    report.ended = ProbeEnd{count_in(*end, "after"), value_or<std::string>(*end, "error", "an error"), value_or<std::string>(*end, "where", ""),
                            value_or(*end, "of_others", false), value_or(*end, "at", 0.0)};
  return report;
}

RunAccount read_run_account(const std::string& dir) {
  constexpr int kMostRanks = 1 << 16, kMostFolders = 1000;
  RunAccount account;
  std::optional<ProbeEnd> first;
  std::string silent;
  int first_rank = 0, most_rank = 0, world = 1;
  int64_t most = 0;
  std::vector<Unrecorded> beside;
  for (int rank = 0; rank < std::min(world, kMostRanks); ++rank) {
    const ProbeReport report = read_probe_report(dir, rank);
    world = std::max(world, report.world_size);
    if (report.ended && (!first || comes_before(*report.ended, *first))) {
      first = report.ended;
      first_rank = rank;
    }
    if (!report.ended && !report.done && world > 1) silent += fmt::format("{}{}", silent.empty() ? "" : ", ", rank);
    int64_t steps = 0;
    for (const Unrecorded& each : report.unrecorded) steps += each.steps;
    if (steps > most) {
      most = steps;
      most_rank = rank;
      beside = report.unrecorded;
    }
    account.leaves_open |= report.tier == "zero" && steps > 0 && steps >= report.steps;
  }
  if (first) {
    account.ended = fmt::format("ended after {}: rank {}, {}{}", counted(first->after, "step"), first_rank, first->error,
                                first->where.empty() ? "" : " (" + first->where + ")");
    if (first->of_others && world > 1)
      account.ended += fmt::format(", as an end of another rank looks from there{}", silent.empty() ? "" : "; without a word left rank " + silent);
  }
  if (most > 0) account.unrecorded = (world > 1 && most_rank > 0 ? fmt::format("on rank {} ", most_rank) : "") + words_of(beside);
  for (int number = 2; number < kMostFolders; ++number) {
    const std::string folder = fmt::format("{}/{}", dir, number);
    std::error_code error;
    if (!std::filesystem::exists(folder + "/rank-0.trace", error)) break;
    account.also.push_back(folder);
  }
  return account;
}

}  // namespace lockstep
