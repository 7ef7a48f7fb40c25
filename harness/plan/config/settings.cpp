#include "harness/plan/config/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "harness/base/text.h"

namespace lockstep {
namespace {

/// Does a key of a run begin with that word and a point?
bool is_group(std::string_view word) {
  const auto opens = [word](const RunField* field) {
    const std::string_view key = field->spec.key;
    return key.size() > word.size() && key.starts_with(word) && key[word.size()] == '.';
  };
  const auto opens_group = [word](const OpenGroup& group) { return group.prefix.substr(0, group.prefix.size() - 1) == word; };
  return std::ranges::any_of(trainer_specs(), [&](const TrainerSpec* spec) {
    return std::ranges::any_of(fields_of(*spec), opens) || std::ranges::any_of(spec->open_groups, opens_group);
  });
}

}  // namespace

std::vector<Entry> entries_of(const YamlNode& map, Problems& problems,
                              std::span<const std::string_view> groups) {
  std::vector<Entry> entries;
  std::unordered_set<std::string> seen;
  const auto add = [&](std::string key, const Place& place, const YamlNode& value) {
    if (!seen.insert(key).second) {
      problems.add(place,
                   fmt::format("duplicate key {}: it is given with and without its group", in_quotes(key)));
      return;
    }
    entries.push_back({std::move(key), place, value});
  };
  for (std::size_t i = 0; i < map.keys.size(); ++i) {
    const YamlNode& key = map.keys[i];
    const YamlNode& value = map.items[i];
    if (!is_group(key.text) && std::ranges::find(groups, key.text) == groups.end()) {
      add(key.text, key.place, value);
    } else if (!value.is_map()) {
      problems.add(value.place.line > 0 ? value.place : key.place,
                   fmt::format("{} must be a map of keys, not {}", key.text,
                               value.is_scalar() ? in_quotes(value.text) : name_of(value.kind)));
    } else {
      for (std::size_t j = 0; j < value.keys.size(); ++j) {
        add(key.text + "." + value.keys[j].text, value.keys[j].place, value.items[j]);
      }
    }
  }
  return entries;
}

void apply(const std::vector<Setting>& settings, RunConfig& config) {
  for (const Setting& setting : settings) store(setting.field->of(config), setting.value);
}

bool Rule::matches(const RunConfig& config) const {
  return std::all_of(conditions.begin(), conditions.end(), [&config](const Choice& condition) {
    const FieldRef ref = condition.field->of(config);
    return std::any_of(condition.values.begin(), condition.values.end(),
                       [&ref](const FieldValue& value) { return equal(ref, value); });
  });
}

bool Rule::mentions(std::string_view key) const {
  return std::any_of(conditions.begin(), conditions.end(),
                     [key](const Choice& condition) { return condition.field->spec.key == key; });
}

void report_unknown_key(const std::string& key, const Place& place, std::vector<std::string_view> known,
                        Problems& problems) {
  // Nobody reads more than these, and a file of nothing but unknown keys would take long.
  constexpr std::size_t kMostSuggestions = 500;
  const bool suggests = problems.size() < kMostSuggestions;
  std::string_view suggestion = suggests ? nearest(key, known) : std::string_view();
  if (suggests && suggestion.empty()) {
    // The right word without its group: `stride` for data.stride.
    const std::string tail = "." + key;
    const auto at =
        std::find_if(known.begin(), known.end(), [&tail](std::string_view k) { return k.ends_with(tail); });
    if (at != known.end()) suggestion = *at;
  }
  problems.add(place, fmt::format("unknown key {}", in_quotes(key)), suggestion);
}

void SettingsReader::read_for(const TrainerSpec& trainer) {
  trainer_ = &trainer;
  scratch_ = RunConfig(trainer);
}

const RunField* SettingsReader::field_of(const Entry& entry, std::vector<std::string_view> others) const {
  const RunField* field = find_field(*trainer_, entry.key);
  if (field != nullptr && field->spec.setter == Setter::user) return field;
  if (entry.key == "seed") {
    problems_.add(entry.place, "seed is set for each run from the list of seeds", "seeds");
  } else if (field != nullptr) {
    problems_.add(entry.place, fmt::format("{} is set by the planner, not by a config", entry.key));
  } else if (const TrainerSpec* owner = owner_of_key(entry.key)) {
    problems_.add(entry.place, fmt::format("{} is a key of trainer {}; this matrix trains {}", entry.key,
                                           owner->name, trainer_->name));
  } else {
    for (const RunField* known : fields_of(*trainer_)) {
      if (known->spec.setter == Setter::user) others.push_back(known->spec.key);
    }
    report_unknown_key(entry.key, entry.place, std::move(others), problems_);
  }
  return nullptr;
}

std::optional<FieldValue> SettingsReader::value_of(const RunField& field, const YamlNode& node) {
  const FieldRef ref = field.of(scratch_);
  // The text becomes part of names, folders and messages.
  if (node.is_scalar() && node.text.find_first_of("\n\t") != std::string::npos) {
    problems_.add(node.place, fmt::format("{} must be a text of one line, without tabs, not {}",
                                          field.spec.key, in_quotes(node.text)));
    return std::nullopt;
  }
  if (!read_field(field.spec, ref, node, problems_)) return std::nullopt;
  if (scratch_.trainer != trainer_->name) {
    problems_.add(node.place, fmt::format("a matrix trains one trainer, and this one trains {}, not {}",
                                          trainer_->name, scratch_.trainer));
    scratch_.trainer = trainer_->name;
    return std::nullopt;
  }
  if (field.spec.words == Words::path && node.place.source == 0) {
    std::string& path = *std::get<std::string*>(ref);
    if (!path.empty() && !folder_.empty()) {
      path = (std::filesystem::path(folder_) / path).lexically_normal().string();
    }
  }
  return load(ref);
}

std::optional<Setting> SettingsReader::setting(const Entry& entry, std::vector<std::string_view> others) {
  const RunField* field = field_of(entry, std::move(others));
  if (field == nullptr) return std::nullopt;
  std::optional<FieldValue> value = value_of(*field, entry.value);
  if (!value) return std::nullopt;
  return Setting{field, std::move(*value), entry.place};
}

std::optional<Choice> SettingsReader::choice(const Entry& entry) {
  const RunField* field = field_of(entry);
  if (field == nullptr) return std::nullopt;
  const bool holds_list = std::holds_alternative<std::vector<int64_t>*>(field->of(scratch_));
  const bool one = !entry.value.is_sequence() ||
                   (holds_list && (entry.value.items.empty() || !entry.value.items.front().is_sequence()));
  Choice choice{field, {}, entry.place};
  if (!one && entry.value.items.empty()) {
    problems_.add(entry.value.place, fmt::format("{} has no value", entry.key));
    return std::nullopt;
  }
  std::unordered_set<std::string> seen;
  bool good = true;
  for (const YamlNode& node : one ? std::vector<YamlNode>{entry.value} : entry.value.items) {
    std::optional<FieldValue> value = value_of(*field, node);
    if (!value) {
      good = false;
    } else if (!seen.insert(text_of(field->of(scratch_))).second) {
      problems_.add(node.place,
                    fmt::format("{} has the value {} twice", entry.key, text_of(field->of(scratch_))));
      good = false;
    } else {
      choice.values.push_back(std::move(*value));
    }
  }
  if (!good) return std::nullopt;
  return choice;
}

std::vector<Setting> SettingsReader::settings(const YamlNode& map) {
  std::vector<Setting> out;
  for (const Entry& entry : entries_of(map, problems_)) {
    if (std::optional<Setting> setting = this->setting(entry)) out.push_back(std::move(*setting));
  }
  return out;
}

Rule SettingsReader::rule(const YamlNode& map) {
  Rule rule;
  rule.place = map.place;
  for (const Entry& entry : entries_of(map, problems_)) {
    if (std::optional<Choice> choice = this->choice(entry)) rule.conditions.push_back(std::move(*choice));
  }
  return rule;
}

}  // namespace lockstep
