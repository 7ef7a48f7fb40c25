#pragma once
// Keys with values as a matrix gives them: settings of a run, axes, and rules that match cells.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep {

/// One key of a map; groups are opened, so that `data: {stride: 2}` and `data.stride: 2` are the same entry.
struct Entry {
  std::string key;  ///< dotted
  Place place;      ///< of the key
  YamlNode value;
};

/// Reports keys that are given both ways. `groups`: groups that may stand there besides those of runs' keys.
std::vector<Entry> entries_of(const YamlNode& map, Problems& problems,
                              std::span<const std::string_view> groups = {});

/// What a RunConfig field is set to, and where.
struct Setting {
  const RunField* field = nullptr;
  FieldValue value;
  Place place;
};
void apply(const std::vector<Setting>& settings, RunConfig& config);

/// Several values of one field: an axis of the matrix, or one condition of a rule.
struct Choice {
  const RunField* field = nullptr;
  std::vector<FieldValue> values;
  Place place;
};

/// `{key: value or list of values}`: matches the cells that have one of the values of every key.
struct Rule {
  std::vector<Choice> conditions;
  Place place;
  bool matches(const RunConfig& config) const;
  bool mentions(std::string_view key) const;
};

/// Reads entries into settings of RunConfig fields. Knows where relative paths start.
class SettingsReader {
 public:
  /// `folder`: of the config file; relative paths in the file (not those of --set) are taken from there.
  SettingsReader(std::string folder, Problems& problems) : folder_(std::move(folder)), problems_(problems) {}

  /// From now on settings are those of this trainer's runs.
  void read_for(const TrainerSpec& trainer);
  const TrainerSpec& trainer() const { return *trainer_; }

  /// The user's field of that key; reports unknown and internal ones. `others`: keys that may stand there
  /// too.
  const RunField* field_of(const Entry& entry, std::vector<std::string_view> others = {}) const;
  std::optional<FieldValue> value_of(const RunField& field, const YamlNode& node);
  std::optional<Setting> setting(const Entry& entry, std::vector<std::string_view> others = {});
  /// One value or a list of values; an empty list and a value given twice are reported.
  std::optional<Choice> choice(const Entry& entry);
  std::vector<Setting> settings(const YamlNode& map);
  Rule rule(const YamlNode& map);

 private:
  std::string folder_;
  Problems& problems_;
  RunConfig scratch_;
  const TrainerSpec* trainer_ = &spec_of(scratch_);
};

/// Reports an unknown key, with the nearest of `known`.
void report_unknown_key(const std::string& key, const Place& place, std::vector<std::string_view> known,
                        Problems& problems);

}  // namespace lockstep
