#include "harness/verdict/questions/config_pairs/pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "harness/verdict/config/config_difference.h"
#include "harness/verdict/config/layout_name.h"
#include "harness/verdict/config/learning_keys.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/planted.h"

namespace lockstep {
namespace {

// Its rows can be halved, for micro-steps and blocks.
constexpr Layout kManyRanks{4, 6}, kOneRank{1, 24};

/// Keys of which a second value is another question, or a file.
bool is_tried(const RunField& field) {
  static constexpr auto kNot = std::to_array<std::string_view>({"trainer", "layout", "steps", "rows", "resume_from", "resume_step", "data.source",
                                                               "data.train_file", "data.test_file"});
  const std::string_view key = field.spec.key;
  return field.spec.setter == Setter::user && decides_learning(key) && std::ranges::find(kNot, key) == kNot.end() &&
         !key.starts_with("mutant.") && !key.starts_with("second_mutant.");
}

bool allows(const Range& range, double value) {
  return (range.low_open ? value > range.low : value >= range.low) && (range.high_open ? value < range.high : value <= range.high);
}

/// Other numbers, the likeliest to be of use first.
std::vector<double> other_numbers(double value, const Range& range) {
  std::vector<double> numbers;
  for (const double other : {2 * value, value / 2, 0.1, 0.5, 1.0, 2.0, value + 1, value - 1}) {
    if (other != value && allows(range, other)) numbers.push_back(other);
  }
  return numbers;
}

template <class Integer>
std::vector<FieldValue> other_whole_numbers(Integer value, const Range& range) {
  std::vector<FieldValue> numbers;
  for (const double number : other_numbers(static_cast<double>(value), range)) {
    const auto integer = static_cast<Integer>(number);
    if (number == static_cast<double>(integer)) numbers.emplace_back(integer);
  }
  return numbers;
}

/// Other values of the field, and whether each is to be tried, or the first that can be.
struct Others {
  std::vector<FieldValue> values;
  bool each = false;
};

Others others_of(const RunField& field, const RunConfig& base) {
  Others others;
  const FieldRef ref = field.of(base);
  if (const auto* flag = std::get_if<bool*>(&ref)) {
    others.values.emplace_back(!**flag);
  } else if (const auto* word = std::get_if<WordRef>(&ref)) {
    others.each = true;
    for (int i = 0; i < static_cast<int>(word->words.size()); ++i) {
      if (i != (**word).index) others.values.emplace_back(Word{i});
    }
  } else if (const auto* text = std::get_if<std::string*>(&ref)) {
    others.each = true;
    for (const std::string_view choice : choices_of(field.spec, ref)) {
      if (choice != **text) others.values.emplace_back(std::string(choice));
    }
  } else if (const auto* real = std::get_if<double*>(&ref)) {
    for (const double number : other_numbers(**real, field.spec.range)) others.values.emplace_back(number);
  } else if (const auto* whole = std::get_if<int*>(&ref)) {
    others.values = other_whole_numbers(**whole, field.spec.range);
  } else if (const auto* longer = std::get_if<int64_t*>(&ref)) {
    others.values = other_whole_numbers(**longer, field.spec.range);
  } else if (const auto* list = std::get_if<std::vector<int64_t>*>(&ref)) {
    for (const std::vector<int64_t>& other : {std::vector<int64_t>{0}, {1}, {0, 1}}) {
      if (other != **list) others.values.emplace_back(other);
    }
  }
  return others;
}

class Search {
 public:
  Search(const MatrixSource& source, ConfigPairsConfig& section) : source_(source), section_(section) {}

  void run(const RunConfig& base, const std::string& on) {
    for (const RunField* field : fields_of(spec_of(base))) {
      if (is_tried(*field)) try_key(*field, base, on);
    }
  }

 private:
  /// Why no run can be that; empty: one can.
  std::string refusal(const KeyPair& pair) const {
    for (const Layout& of_reference : {kOneRank, kManyRanks}) {
      if (const auto problems = cell_problems(source_, cell_of(pair, of_reference)); !problems.empty()) return problems.front();
    }
    return "";
  }

  void try_key(const RunField& field, const RunConfig& base, const std::string& on) {
    const std::string key(field.spec.key);
    const Others others = others_of(field, base);
    std::string why = others.values.empty() ? "no second value is known" : "";
    bool any = false;
    for (const FieldValue& value : others.values) {
      KeyPair pair{key, "", on, base, base};
      store(field.of(pair.changed), value);
      pair.value = text_of(field.of(pair.changed));
      if (config_differences(pair.base, pair.changed).empty()) continue;
      const std::string refused = refusal(pair);
      if (refused.empty()) {
        any = true;
        section_.pairs.push_back(std::move(pair));
        if (!others.each) return;
      } else {
        if (others.each) section_.left_out.push_back({fmt::format("{}={}{}", key, pair.value, on_text(on)), refused});
        if (why.empty()) why = refused;
      }
    }
    if (!any && !others.each) section_.left_out.push_back({key + on_text(on), why});
  }

 public:
  static std::string on_text(const std::string& on) { return on.empty() ? "" : " on " + on; }

  /// On many ranks, against a reference of that layout.
  static Cell cell_of(const KeyPair& pair, const Layout& of_reference) {
    Cell cell;
    cell.config = pair.changed;
    cell.config.layout = kManyRanks;
    cell.reference = pair.base;
    cell.reference.layout = of_reference;
    cell.paired = of_reference == kManyRanks;  // bits decide
    cell.short_name = fmt::format("{} {}={}{}", layout_name(kManyRanks), pair.key, pair.value, on_text(pair.on));
    cell.name = cell.short_name + (cell.paired ? " against " + layout_name(kManyRanks) : "");
    cell.reference_name = layout_name(of_reference) + on_text(pair.on);
    cell.settings = {{pair.key, pair.value}};
    // What the key does decides, when its runs have shown it.
    cell.expected = {VerdictKind::identical, VerdictKind::within_envelope, VerdictKind::divergent};
    return cell;
  }

 private:
  const MatrixSource& source_;
  ConfigPairsConfig& section_;
};

/// The base with these settings; nothing, and a problem, where they cannot be read.
std::optional<RunConfig> with_settings(const MatrixSource& source, const std::string& on, Problems& problems) {
  const std::size_t before = problems.size();
  const std::vector<Setting> settings = settings_of(on, spec_of(source.base), source.place_of("config_pairs.on"), problems);
  if (problems.size() != before) return std::nullopt;
  RunConfig config = source.base;
  apply(settings, config);
  return config;
}

}  // namespace

void find_config_pairs(const MatrixSource& source, ConfigPairsConfig& section, Problems& problems) {
  Search search(source, section);
  search.run(source.base, "");
  for (const std::string& on : section.on) {
    if (const auto base = with_settings(source, on, problems)) search.run(*base, on);
  }
}

std::vector<Cell> config_pair_cells(MatrixSource& source, Problems&) {
  std::vector<Cell> cells;
  for (const KeyPair& pair : section_of<ConfigPairsConfig>(source.matrix).pairs) {
    for (const Layout& of_reference : {kOneRank, kManyRanks}) cells.push_back(Search::cell_of(pair, of_reference));
  }
  return cells;
}

}  // namespace lockstep
