#include "harness/suites/engine/suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/plan/config/field.h"
#include "harness/run/launchers/local/launcher.h"

namespace lockstep {
TrialDisturbed::TrialDisturbed(const std::string& who)
    : MachineError(fmt::format("{} was killed by signal 9 (SIGKILL), which nobody here had sent: the machine was out of memory (dmesg and the "
                               "cgroup's memory.events say so), or somebody ended it", who)) {}

bool count_alike(std::vector<CaseResult>& cases, const std::string& outcome, CaseVerdict verdict) {
  const auto alike = std::ranges::find_if(
      cases, [&](const CaseResult& each) { return each.verdict == verdict && each.outcome == outcome; });
  if (alike == cases.end()) return false;
  ++alike->cases;
  return true;
}

namespace {

thread_local Measurements* t_measured = nullptr;

}  // namespace

void Measurements::at_least(const std::string& name, double value) {
  const auto [place, added] = greatest_.try_emplace(name, value);
  if (!added) place->second = std::max(place->second, value);
}

int64_t Measurements::count(const std::string& name) const {
  const auto found = counts_.find(name);
  return found == counts_.end() ? 0 : found->second;
}

double Measurements::greatest(const std::string& name) const {
  const auto found = greatest_.find(name);
  return found == greatest_.end() ? 0 : found->second;
}

const std::map<std::string, nlohmann::json>& Measurements::entries(const std::string& name) const {
  static const std::map<std::string, nlohmann::json> kNone;
  const auto found = entries_.find(name);
  return found == entries_.end() ? kNone : found->second;
}

void Measurements::merge(const Measurements& other) {
  for (const auto& [name, count] : other.counts_) add(name, count);
  for (const auto& [name, value] : other.greatest_) at_least(name, value);
  for (const auto& [name, values] : other.samples_) samples_[name].insert(samples_[name].end(), values.begin(), values.end());
  for (const auto& [name, entries] : other.entries_) {
    for (const auto& [key, value] : entries) entries_[name][key] = value;
  }
}

nlohmann::json Measurements::to_json() const {
  return {{"counts", counts_}, {"greatest", greatest_}, {"samples", samples_}, {"entries", entries_}};
}

Measurements Measurements::from_json(const nlohmann::json& json) {
  Measurements read;
  json.at("counts").get_to(read.counts_);
  json.at("greatest").get_to(read.greatest_);
  json.at("samples").get_to(read.samples_);
  json.at("entries").get_to(read.entries_);
  return read;
}

Measurements& measured() {
  LOCKSTEP_CHECK(t_measured != nullptr, "only a trial measures");
  return *t_measured;
}

MeasuredTrial::MeasuredTrial(Measurements& measurements) : before_(t_measured) { t_measured = &measurements; }
MeasuredTrial::~MeasuredTrial() { t_measured = before_; }

namespace fs = std::filesystem;

Thresholds RankRun::no_thresholds() {
  constexpr double kLong_s = 1e9;
  return {kLong_s, kLong_s, kLong_s, kLong_s, kLong_s, kLong_s};
}

RankRuns::RankRuns(std::string rank_program, std::string work, const volatile int* stop_requested)
    : rank_program_(std::move(rank_program)), work_(std::move(work)), stop_requested_(stop_requested) {
  fs::remove_all(work_);
  fs::create_directories(work_);
}

std::string RankRuns::folder(const std::string& name) const {
  std::string dir = work_ + "/" + name;
  fs::remove_all(dir);
  fs::create_directories(dir);
  return dir;
}

EndedRun RankRuns::run(const std::string& dir, nlohmann::json run_json, const RankRun& asked, RunHooks hooks) {
  constexpr double kLookEvery_s = 0.002;  // a fault strikes within a step
  seal(run_json);
  write_file_atomically(dir + "/run.json", run_json.dump(2) + "\n");
  if (supervisor_ == nullptr) supervisor_ = std::make_unique<Supervisor>(std::make_unique<LocalLauncher>(rank_program_), rank_program_);
  going_ = fmt::format("run-{}", ++runs_);
  RunSpec spec;
  spec.start.run = going_;
  spec.start.dir = dir;
  spec.start.world_size = asked.world_size;
  spec.start.processes = asked.processes > 0 ? asked.processes : asked.world_size;
  spec.thresholds = asked.thresholds;
  spec.failure_grace_s = asked.failure_grace_s;
  spec.stop_grace_s = asked.stop_grace_s;
  spec.deadline_s = asked.deadline_s;
  spec.look_every_s = kLookEvery_s;
  EndedRun ended = supervise(*supervisor_, std::move(spec), std::move(hooks), stop_requested_);
  for (const RankEnd& end : ended.ends) {
    const bool by_others = end.signal == SIGKILL && !end.killed_by_us && !(asked.kills && asked.kills(std::max(end.rank, 0)));
    if (by_others && *stop_requested_ == 0) throw TrialDisturbed(fmt::format("rank {}", std::max(end.rank, 0)));
  }
  return ended;
}

void RankRuns::signal(int number) {
  if (supervisor_ != nullptr) supervisor_->stop(going_, number);
}

std::string in_words(const std::vector<RankEnd>& ends) {
  std::string text;
  for (const RankEnd& end : ends) {
    const std::string how = end.signal != 0 ? fmt::format("killed by signal {}", end.signal) : fmt::format("status {}", end.code);
    text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", std::max(end.rank, 0), how);
  }
  return text;
}

namespace {

constexpr std::string_view kKind = "suite", kName = "name";
/// The key's name until 0.1: accepted still.
constexpr std::string_view kOldKind = "laboratory";

std::string first_comment(const std::string& text) {
  if (!text.starts_with('#')) return "";
  std::string line = text.substr(0, text.find('\n'));
  line.erase(0, std::min(line.find_first_not_of("# "), line.size()));
  const std::size_t last = line.find_last_not_of(" \r\t");
  return last == std::string::npos ? "" : line.substr(0, last + 1);
}

std::vector<std::string_view> names_of(std::span<const SuiteKind* const> kinds) {
  std::vector<std::string_view> names;
  for (const SuiteKind* kind : kinds) names.push_back(kind->name);
  return names;
}

/// "--set program.save=…" as an entry of its own; a section's key must be given in full.
void read_set(const std::string& option, std::vector<Entry>& entries, Problems& problems) {
  const int number = problems.add_source("--set " + option);
  const std::size_t sign = option.find('=');
  if (sign == std::string::npos || sign == 0) return problems.add({number}, "--set takes key=value");
  Entry entry{option.substr(0, sign), {number}, {}};
  const std::size_t before = problems.size();
  entry.value = read_yaml(option.substr(sign + 1), number, problems);
  if (problems.size() != before) return;
  entry.value.place = {number};
  const auto at = std::ranges::find(entries, entry.key, &Entry::key);
  if (at == entries.end())
    entries.push_back(std::move(entry));
  else
    *at = std::move(entry);
}

class Reader {
 public:
  Reader(const std::string& file, std::span<const SuiteKind* const> kinds, Problems& problems)
      : kinds_(kinds), problems_(problems) {
    source_.file = file;
  }

  SuiteConfig read(const std::string& text, const std::vector<std::string>& set) {
    source_.question_text = first_comment(text);
    const YamlNode root = read_yaml(text, 0, problems_);
    std::vector<Entry> all = entries_of(root, problems_, names_of(kinds_));
    for (const std::string& option : set) read_set(option, all, problems_);
    const SuiteKind* kind = kind_of(all);
    for (Entry& entry : all) take(std::move(entry), kind);
    if (source_.name.empty() && problems_.empty())
      problems_.add({0, 1, 1}, "the key name is missing: the name of the suite's folder under out/");
    SuiteConfig config;
    if (kind != nullptr) config.suite = kind->make(source_, problems_);
    problems_.throw_if_any();
    config.source = std::move(source_);
    return config;
  }

 private:
  const SuiteKind* kind_of(const std::vector<Entry>& entries) {
    const auto said = std::ranges::find_if(entries, [](const Entry& entry) { return entry.key == kKind || entry.key == kOldKind; });
    if (said == entries.end()) return nullptr;
    source_.place = said->place;
    if (!said->value.is_scalar()) {
      problems_.add(said->place, "suite must be the name of one");
      return nullptr;
    }
    source_.kind = said->value.text;
    for (const SuiteKind* kind : kinds_) {
      if (kind->name == source_.kind) return kind;
    }
    const std::vector<std::string_view> names = names_of(kinds_);
    problems_.add(said->value.place,
                  fmt::format("unknown suite {}; known are {}", in_quotes(source_.kind), fmt::join(names, ", ")),
                  nearest(source_.kind, names));
    return nullptr;
  }

  void take(Entry entry, const SuiteKind* kind) {
    if (entry.key == kKind || entry.key == kOldKind) return;
    if (entry.key == kName) {
      FieldSpec spec{kName, {}, "", "name of the suite and of its folder under out/", Words::name};
      read_field(spec, &source_.name, entry.value, problems_);
      return;
    }
    if (kind == nullptr) return;
    if (entry.key.starts_with(std::string(kind->name) + ".")) {
      source_.entries.push_back(std::move(entry));
      return;
    }
    report_unknown_key(entry.key, entry.place, {kName, kKind, kind->name}, problems_);
  }

  std::span<const SuiteKind* const> kinds_;
  Problems& problems_;
  SuiteSource source_;
};

}  // namespace

const Entry* SuiteSource::find(std::string_view key) const {
  const auto at = std::ranges::find(entries, key, &Entry::key);
  return at == entries.end() ? nullptr : &*at;
}

std::vector<std::string> take_words(SuiteSource& source, std::string_view key, const std::vector<std::string_view>& known,
                                    Problems& problems) {
  const Entry* const entry = source.find(key);
  if (entry == nullptr) return {};
  std::vector<std::string> words;
  if (!entry->value.is_sequence() || entry->value.items.empty()) problems.add(entry->place, fmt::format("{} must be a list", key));
  for (const YamlNode& item : entry->value.items) {
    words.push_back(item.text);
    if (known.empty() || std::ranges::find(known, item.text) != known.end()) continue;
    problems.add(item.place, fmt::format("{}: unknown {}; known are {}", key, in_quotes(item.text), fmt::join(known, ", ")),
                 nearest(item.text, known));
  }
  std::erase_if(source.entries, [key](const Entry& each) { return each.key == key; });
  return words;
}

SchemaJson words_schema(const std::vector<std::string_view>& known, const std::string& help) {
  SchemaJson items{{"type", "string"}};
  if (!known.empty()) items["enum"] = known;
  return list_schema(std::move(items), help);
}

bool names_a_suite(const std::string& text) {
  Problems unread("");
  const YamlNode root = read_yaml(text, 0, unread);
  return root.is_map() && std::ranges::any_of(root.keys, [](const YamlNode& key) { return key.text == kKind || key.text == kOldKind; });
}

SuiteConfig read_suite(const std::string& text, const std::string& file,
                                 const std::vector<std::string>& set,
                                 std::span<const SuiteKind* const> kinds) {
  Problems problems(file);
  return Reader(file, kinds, problems).read(text, set);
}

nlohmann::ordered_json suite_schema(std::span<const SuiteKind* const> kinds) {
  SchemaJson schema = object_schema();
  schema["description"] = "trials of a library or of a program under failures";
  schema["required"] = {kName};
  schema["anyOf"] = SchemaJson::array({{{"required", {kKind}}}, {{"required", {kOldKind}}}});
  schema["properties"][kName] = {{"type", "string"}, {"pattern", "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$"}};
  SchemaJson names = SchemaJson::array();
  for (const SuiteKind* kind : kinds) names.push_back(kind->name);
  schema["properties"][kOldKind] = {{"type", "string"}, {"enum", names}, {"description", "the name of `suite` until 0.1"}};
  schema["properties"][kKind] = {{"type", "string"}, {"enum", std::move(names)}};
  for (const SuiteKind* kind : kinds) {
    // Inserted whole: a place in the object does not outlive the next insertion.
    SchemaJson section = kind->schema();
    section["description"] = kind->help;
    schema["properties"][std::string(kind->name)] = std::move(section);
  }
  return schema;
}

}  // namespace lockstep
