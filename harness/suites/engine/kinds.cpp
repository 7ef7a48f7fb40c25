#include "harness/suites/engine/kinds.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "harness/base/text.h"
#include "harness/verdict/config/field.h"

namespace lockstep {
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
  for (const SuiteKind* kind : kinds) {
    if (!kind->old_name.empty()) names.push_back(kind->old_name);
  }
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
      if (kind->name == source_.kind || (!kind->old_name.empty() && kind->old_name == source_.kind)) {
        source_.kind = kind->name;
        return kind;
      }
    }
    std::vector<std::string_view> names;
    for (const SuiteKind* kind : kinds_) names.push_back(kind->name);
    std::string known;
    for (const std::string_view name : names) known += (known.empty() ? "" : ", ") + std::string(name);
    problems_.add(said->value.place, fmt::format("unknown suite {}; known are {}", in_quotes(source_.kind), known),
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
    if (!kind->old_name.empty() && entry.key.starts_with(std::string(kind->old_name) + "."))
      entry.key = std::string(kind->name) + entry.key.substr(kind->old_name.size());
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
    if (!kind->old_name.empty()) schema["properties"][std::string(kind->old_name)] = section;
    schema["properties"][std::string(kind->name)] = std::move(section);
  }
  return schema;
}

void Cases::good(const std::string& outcome, int64_t cases) {
  if (!count_alike(results_, outcome, CaseVerdict::good, cases)) results_.push_back({outcome, CaseVerdict::good, cases, ""});
}

void Cases::fault(const std::string& outcome, std::string sentence, std::vector<TimelineStep> timeline) {
  results_.push_back({outcome, CaseVerdict::fault, 1, std::move(sentence), std::move(timeline)});
}

void Cases::undecided(const std::string& outcome, std::string sentence) {
  results_.push_back({outcome, CaseVerdict::undecided, 1, std::move(sentence)});
}

void MutationCheck::saw(const std::string& code, const std::string& sentence, std::vector<TimelineStep> timeline) {
  ++acted_;
  const bool right = std::ranges::find(expected_, code) != expected_.end();
  named_ += right;
  if (right && sentence_.empty()) {
    code_ = code;
    sentence_ = sentence;
    timeline_ = std::move(timeline);
  }
  if (right || !other_sentence_.empty()) return;
  other_code_ = code.empty() ? "nothing" : code;
  other_sentence_ = sentence.empty() ? "no word" : sentence;
}

std::vector<CaseResult> MutationCheck::result(const std::string& words) const {
  CaseResult result;
  if (acted_ == 0) {
    result = {"planted, never acts", CaseVerdict::fault, 1,
              fmt::format("{}: planted, and it changes nothing in any case", words)};
  } else if (named_ == acted_) {
    result = {kFoundAndNamed, CaseVerdict::planted, 1,
              fmt::format("{}, as planted: named {} in all {} cases in which it acts. The first: {}{}", words,
                          code_, with_commas(acted_), sentence_, remark_),
              timeline_};
  } else {
    result = {other_code_ == "nothing" ? "planted, not found" : "planted, named wrongly", CaseVerdict::fault,
              1,
              fmt::format("{}: named so in {} of the {} cases in which it acts; where not, {} was found: {}",
                          words, with_commas(named_), with_commas(acted_), other_code_, other_sentence_)};
  }
  return {std::move(result)};
}

Trial planted_trial(std::string_view name, std::string_view words, std::string_view place,
                      double estimate_s, std::vector<std::string> expected, std::function<void(MutationCheck&)> check) {
  Trial planned;
  planned = {fmt::format("planted:{}", name), fmt::format("planted: {}", words), std::string(place),
                   estimate_s};
  planned.run = [words = std::string(words), expected = std::move(expected), check = std::move(check)](Slot&) {
    MutationCheck seen(expected);
    check(seen);
    return seen.result(words);
  };
  return planned;
}

}  // namespace lockstep
