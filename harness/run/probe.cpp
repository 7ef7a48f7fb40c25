#include "harness/run/probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/judge/trace/reader.h"
#include "harness/plan/config/field.h"
#include "harness/run/libraries.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStartup = "lockstep_probe/startup";

std::string own_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool holds_probe(const std::string& folder) {
  std::error_code error;
  return fs::exists(fs::path(folder) / kStartup / "sitecustomize.py", error);
}

void add_site_folders(const fs::path& lib, std::vector<std::string>& places) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(lib, error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().string().starts_with("python3")) continue;
    for (const char* name : {"site-packages", "dist-packages"}) found.push_back((at->path() / name).string());
  }
  std::ranges::sort(found, std::greater{});
  places.insert(places.end(), found.begin(), found.end());
}

void add_value(Series& series, int64_t step, double value) {
  series.steps.push_back(step);
  series.values.push_back(value);
}

/// Steps of training are numbered from 0; the state before the first one stands in step -1.
void take_step(const StepRecords& step, RecordedRank& rank) {
  if (step.step < 0) return;
  ++rank.steps;
  rank.last_step = step.step;
  for (const Record& record : step.records) {
    if (!record.is_scalar) continue;
    if (record.phase == Phase::loss && record.name == "loss") add_value(rank.loss, step.step, record.value);
    if (record.phase == Phase::evaluation) add_value(rank.metrics[record.name], step.step, record.value);
  }
}

}  // namespace

std::vector<std::string> probe_places(const std::string& program, const std::string& chosen) {
  if (!chosen.empty()) return {chosen};
  const fs::path bin = fs::path(program).parent_path(), prefix = bin.parent_path();
  std::vector<std::string> places = {(prefix / "share" / "lockstep" / "probe").string()};
  add_site_folders(prefix / "lib", places);
  places.push_back((prefix.parent_path().parent_path() / "probe" / "python").lexically_normal().string());
  return places;
}

std::string find_probe() {
  const std::string chosen = own_variable("LOCKSTEP_PROBE");
  const std::vector<std::string> places = probe_places(program_path(), chosen);
  const auto found = std::ranges::find_if(places, holds_probe);
  if (found != places.end()) return fs::absolute(*found).string();
  throw ConfigError(fmt::format("the probe (the Python package lockstep_probe) is not found; tried {}; {}",
                                fmt::join(places, ", "),
                                chosen.empty() ? "install it with pip install lockstep_probe-*.whl, or name its folder in LOCKSTEP_PROBE"
                                               : "that is what LOCKSTEP_PROBE names: it must be the folder that holds lockstep_probe"));
}

BuildIdentity probe_identity(const std::string& probe, const std::string& data_hash) {
  std::vector<std::string> names;
  std::error_code error;
  const fs::path package = fs::path(probe) / "lockstep_probe";
  for (fs::recursive_directory_iterator at(package, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".py") names.push_back(at->path().lexically_relative(package).string());
  std::ranges::sort(names);
  std::string all;
  for (const std::string& name : names) all += name + "\n" + hash_of_file((package / name).string()) + "\n";
  return {hash_in_hex(all), "", instruction_sets(), data_hash};
}

std::vector<std::pair<std::string, std::string>> probe_variables(const std::string& probe, const ProbeSettings& settings) {
  std::vector<std::pair<std::string, std::string>> variables;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) variables.emplace_back(name, value);
  };
  add("LOCKSTEP_TRACE", settings.trace);
  add("LOCKSTEP_EMPTIED", settings.trace);  // what is there when a rank begins is of this command
  add("LOCKSTEP_LEVEL", settings.level);
  add("LOCKSTEP_SNAPSHOTS", settings.snapshots);
  add("LOCKSTEP_EVERY", settings.every);
  add("LOCKSTEP_LED_BY", settings.led_by);
  add("LOCKSTEP_STEPS", settings.steps);
  add("LOCKSTEP_PRECISION", settings.float64 ? "float64" : "");
  add("LOCKSTEP_DROPOUT", settings.no_dropout ? "off" : "");
  add("LOCKSTEP_HEARTBEAT", settings.heartbeat);
  add("LOCKSTEP_RUN", settings.run);
  std::string path = probe + "/" + kStartup + ":" + probe;
  if (const std::string own = own_variable("PYTHONPATH"); !own.empty()) path += ":" + own;
  add("PYTHONPATH", path);
  return variables;
}

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& variables) {
  std::set<std::string_view> names;
  for (const auto& [name, value] : variables) names.insert(name);
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!names.contains(text.substr(0, text.find('=')))) entries.emplace_back(text);
  }
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

std::string judged_with(const ProbeReport& report) {
  std::vector<std::string> words = {"free runs"};
  if (report.samples) words.emplace_back("rows by their ids");
  if (!report.led.empty()) words.emplace_back("steps led by the reference");
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string not_seen(const ProbeReport& report) {
  std::vector<std::string> words;
  if (!report.samples) words.emplace_back("sample ids (other layouts are then compared without knowing which rows they hold)");
  if (!report.loss) words.emplace_back("the loss");
  if (!report.row_losses) words.emplace_back("losses of rows");
  if (report.metrics.empty()) words.emplace_back("metrics");
  return fmt::format("{}", fmt::join(words, ", "));
}

RecordedRank read_recorded_rank(const std::string& dir, int rank) {
  RecordedRank found;
  const std::string path = fmt::format("{}/rank-{}.trace", dir, rank);
  std::error_code error;
  if (!fs::exists(path, error)) return found;
  found.there = true;
  try {
    TraceReader reader(path);
    found.world_size = reader.header().world_size;
    found.level = words_of(TraceLevel{})[static_cast<std::size_t>(reader.header().level)];
    found.bytes = reader.file_bytes();
    if (reader.header().rank != rank) found.problem = fmt::format("{} is of rank {}", path, reader.header().rank);
    while (const auto step = reader.next()) take_step(*step, found);
    found.whole = reader.finished();
    found.end = reader.end();
  } catch (const TraceError& trouble) {
    found.problem = trouble.what();
  }
  return found;
}

}  // namespace lockstep
