#include "harness/plan/matrix/read_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <type_traits>

#include "harness/base/files.h"
#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/matrix/checks.h"
#include "harness/plan/matrix/matrix.h"

namespace lockstep {
namespace {

// Besides those that a question has of its own.
constexpr std::array<std::string_view, 10> kSections{"seeds",   "reference",      "axes",     "exclude",
                                                     "include", "power_controls", "expect",   "noise",
                                                     "noise_of", "timing.layouts"};
constexpr std::array<std::string_view, 5> kGroups{"primary", "band", "timing", "seeds_auto", "certify"};
constexpr std::array<int64_t, 10> kForcedSteps{0, 1, 2, 5, 10, 20, 50, 100, 200, 500};

/// Groups of keys; a question's own has its name.
const std::vector<std::string_view>& groups() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> names(kGroups.begin(), kGroups.end());
    for (const QuestionPlan* question : question_plans()) {
      const auto in_group = [&](const QuestionKey& key) { return key.key.starts_with(std::string(question->name) + "."); };
      if (question->fields != nullptr || (question->keys != nullptr && std::ranges::any_of(question->keys(), in_group)))
        names.push_back(question->name);
    }
    return names;
  }();
  return all;
}

std::string first_comment(const std::string& text) {
  if (!text.starts_with('#')) return "";
  std::string line = text.substr(0, text.find('\n'));
  line.erase(0, line.find_first_not_of("# "));
  const std::size_t last = line.find_last_not_of(" \r\t");
  return last == std::string::npos ? "" : line.substr(0, last + 1);
}

class SourceReader {
 public:
  SourceReader(const std::string& file_name, Problems& problems)
      : problems_(problems), settings_(std::filesystem::path(file_name).parent_path().string(), problems) {
    source_.matrix.file = file_name;
    source_.matrix.seeds = {0};
  }

  /// The trainer decides which keys there are, so it is read before all others; the first one named counts.
  /// An unknown name is refused when it is read with the other keys.
  void train(std::string_view trainer) {
    const TrainerSpec* spec = find_trainer_spec(trainer);
    if (spec == nullptr || trainer_is_set_) return;
    trainer_is_set_ = true;
    settings_.read_for(*spec);
    source_.base = RunConfig(*spec);
    source_.matrix.of_command = spec->is_command();
  }

  void read_text(const std::string& text) {
    source_.matrix.question_text = first_comment(text);
    YamlNode root = read_yaml(text, 0, problems_);
    if (root.is_map()) {
      top_ = entries_of(root, problems_, groups());
    } else if (problems_.empty()) {
      problems_.add({0, 1, 1},
                    root.is_null() ? "the config is empty" : "a config is a map of keys and values");
    }
    is_map_ = root.is_map();
    if (const Entry* trainer = find("trainer"); trainer != nullptr && trainer->value.is_scalar()) {
      train(trainer->value.text);
    }
    if (const Entry* reference = find("reference"); reference != nullptr) {
      if (reference->value.is_map()) {
        reference_ = entries_of(reference->value, problems_, groups());
      } else {
        add_unsound(reference->value.place,
                    fmt::format("reference must be a map, not {}", got(reference->value)));
      }
    }
    if (const Entry* axes = find("axes"); axes != nullptr) read_axes(*axes);
  }

  void read_set(const std::string& option) {
    const int number = problems_.add_source("--set " + option);
    const std::size_t sign = option.find('=');
    if (sign == std::string::npos || sign == 0) {
      problems_.add({number}, "--set takes key=value");
      return;
    }
    YamlNode map;
    map.kind = YamlNode::Kind::map;
    map.place = {number};
    map.keys.emplace_back();
    map.keys.front().kind = YamlNode::Kind::scalar;
    map.keys.front().place = {number};
    map.keys.front().text = option.substr(0, sign);
    const std::size_t before = problems_.size();
    map.items.push_back(read_yaml(option.substr(sign + 1), number, problems_));
    if (problems_.size() != before) return;
    map.items.front().place = {number};
    for (Entry& entry : entries_of(map, problems_, groups())) set_entry(std::move(entry));
  }

  MatrixSource finish(const Overrides& overrides) {
    read_top();
    read_reference();
    // The file's own list decides: trying one seed of an outcome does not turn it into another question.
    if (source_.matrix.seeds_auto.on) source_.matrix.seeds = seeds_of_analysis(source_.matrix.seeds_auto.first);
    if (!is_given("question") && source_.matrix.seeds.size() > 1) {
      source_.matrix.question = question_of_several_seeds();
    }
    if (!overrides.seeds.empty()) {
      const int number = problems_.add_source("--seeds " + overrides.seeds);
      const std::string wrong = parse_seeds(overrides.seeds, source_.matrix.seeds);
      if (!wrong.empty()) problems_.add({number}, wrong);
      source_.matrix.seeds_auto.on = false;
      source_.set_keys.insert("seeds");
    }
    if (source_.matrix.seeds.empty()) source_.matrix.seeds = {0};
    take_launcher(source_, overrides.launcher, problems_);
    find_replay();
    if (!is_given("primary.metric")) {
      source_.matrix.primary.metric = std::string(settings_.trainer().shown_metric);
    }
    const QuestionPlan& asks = asked_by(source_.matrix);
    if (!is_given("forced_steps")) source_.matrix.forced_steps.assign(kForcedSteps.begin(), kForcedSteps.end());
    // What is measured at the end of training answers no question of what it computes.
    if (!is_given("eval_every") && !asks.by_outcome && !source_.base.checkpoint.on()) {
      source_.base.eval_every = EvaluationPeriod::never();
    }
    if (asks.finish != nullptr) asks.finish(source_, problems_);
    check_seeds_auto(source_, problems_);
    source_.base.seed = source_.matrix.seeds.front();
    if (settings_.trainer().is_command()) settle_command();
    if (source_.matrix.ranks == RanksPolicy::real) source_.base.backend = Backend::gloo;
    return std::move(source_);
  }

 private:
  bool is_given(std::string_view key) const { return source_.places.contains(key); }
  bool is_trainers_own(std::string_view key) const {
    const auto own = settings_.trainer().fields();
    return std::ranges::any_of(own, [key](const RunField& field) { return field.spec.key == key; });
  }

  /// Nobody but its own processes runs a command's steps: there are no emulated ranks, and gradients are forced by its probe alone.
  void settle_command() {
    Matrix& matrix = source_.matrix;
    if (is_given("ranks") && matrix.ranks != RanksPolicy::real)
      problems_.add(source_.place_of("ranks"), "the ranks of a command are its own processes: ranks must be real");
    matrix.ranks = RanksPolicy::real;
    if (!is_given("primary.metric")) matrix.primary.metric = "train_loss";
    const QuestionPlan& asks = asked_by(matrix);
    if (is_given("led") && asks.by_outcome)
      problems_.add(source_.place_of("led"), "the metrics of a led run are its reference's: question must be mechanism or detection");
    if (asks.references != References::given) {
      problems_.add(source_.place_of("question"),
                    fmt::format("{} runs lockstep's own trainers; of a command ask mechanism, outcome or detection", asks.name));
      source_.sound = false;
    }
    if (settings_.trainer().take_config_folder != nullptr) {
      const std::filesystem::path file = std::filesystem::absolute(matrix.file);
      settings_.trainer().take_config_folder(source_.base, file.parent_path().lexically_normal().string());
    }
  }

  static std::string question_of_several_seeds() {
    const auto plans = question_plans();
    const auto at = std::find_if(plans.begin(), plans.end(),
                                 [](const QuestionPlan* question) { return question->of_several_seeds; });
    return at == plans.end() ? default_question() : std::string((*at)->name);
  }

  void find_replay() {
    std::string& step = source_.matrix.replay;
    if (step.empty()) return;
    if (settings_.trainer().is_command()) {
      problems_.add(source_.place_of("replay"), "a command has no saved steps: led: true lets its reference lead the cells' runs, and lockstep check compares one program");
      step.clear();
      return;
    }
    const std::filesystem::path folder = std::filesystem::path(source_.matrix.file).parent_path();
    step = std::filesystem::absolute(folder / step).lexically_normal().string();
    if (!asked_by(source_.matrix).takes_replay) {
      std::vector<std::string_view> names;
      for (const QuestionPlan* question : question_plans()) {
        if (question->takes_replay) names.push_back(question->name);
      }
      problems_.add(source_.place_of("replay"),
                    fmt::format("a saved step is compared by its mechanism: question must be {}",
                                fmt::join(names, " or ")));
    } else if (const OpenFile file(step); file.missing()) {
      problems_.add(source_.place_of("replay"), fmt::format("{} is not there", step));
    } else if (!file.problem().empty()) {
      problems_.add(source_.place_of("replay"), fmt::format("{} {}", step, file.problem()));
    }
  }

  const Entry* find(std::string_view key) const {
    const auto at =
        std::find_if(top_.begin(), top_.end(), [key](const Entry& entry) { return entry.key == key; });
    return at == top_.end() ? nullptr : &*at;
  }
  static std::string got(const YamlNode& node) {
    return node.is_scalar() ? in_quotes(node.text) : name_of(node.kind);
  }
  void add_unsound(const Place& place, std::string message) {
    problems_.add(place, std::move(message));
    source_.sound = false;
  }

  // Runs `read` and notes whether it found a problem that leaves the cells in doubt.
  template <class Read>
  void watch(Read read, bool decides_cells = true) {
    const std::size_t before = problems_.size();
    read();
    if (decides_cells && problems_.size() != before) source_.sound = false;
  }

  // Of the matrix's scalar keys few do: a question's own where it draws its cells by them.
  static bool decides_cells(std::string_view key) {
    const QuestionPlan* owner = find_question(key.substr(0, key.find('.')));
    return key == "ranks" || key == "question" || (owner != nullptr && owner->draws_cells());
  }

  static void replace(std::vector<Entry>& entries, Entry entry) {
    const auto at =
        std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == entry.key; });
    if (at != entries.end()) {
      *at = std::move(entry);
    } else {
      entries.push_back(std::move(entry));
    }
  }

  static bool is_settable(const std::string& key) {
    if (const QuestionKey* own = find_question_key(key)) return own->settable;
    return key == "seeds" || std::find(kSections.begin(), kSections.end(), key) == kSections.end();
  }

  void set_entry(Entry entry) {
    constexpr std::string_view kReference = "reference.";
    if (!source_.set_keys.insert(entry.key).second) {
      problems_.add(entry.place, fmt::format("{} is set twice", entry.key));
      return;
    }
    const auto axis = std::find_if(source_.axes.begin(), source_.axes.end(), [&entry](const Choice& choice) {
      return choice.field->spec.key == entry.key;
    });
    if (axis != source_.axes.end()) {
      watch([&] {
        if (std::optional<Choice> choice = settings_.choice(entry)) *axis = std::move(*choice);
      });
      source_.places[entry.key] = entry.place;
    } else if (entry.key.starts_with(kReference)) {
      entry.key.erase(0, kReference.size());
      replace(reference_, std::move(entry));
      source_.reference_given = true;
    } else if (!is_settable(entry.key)) {
      problems_.add(entry.place, fmt::format("{} can be set only in the file", entry.key));
    } else {
      replace(top_, std::move(entry));
    }
  }

  void read_top() {
    for (const Entry& entry : top_) {
      if (entry.key != "axes") source_.places[entry.key] = entry.place;
      if (entry.key == "seeds" && entry.value.is_scalar() && entry.value.text == "auto") {
        source_.matrix.seeds_auto.on = true;
      } else if (entry.key == "seeds") {
        watch([&] { read_seeds(entry.value, source_.matrix.seeds, problems_); });
      } else if (entry.key == "noise") {
        watch([&] { read_noise(entry); });
      } else if (entry.key == "timing.layouts") {
        watch([&] { read_timed_layouts(entry); });
      } else if (const QuestionKey* own = find_question_key(entry.key)) {
        watch([&] { own->read(entry, source_, problems_); });
      } else if (std::vector<Rule>* const rules = rules_of(entry.key)) {
        read_rules(entry, *rules);
      } else if (entry.key == "include") {
        read_include(entry);
      } else if (entry.key == "expect") {
        read_expect(entry);
      } else if (const MatrixField* field = find_matrix_field(entry.key); field != nullptr && !is_trainers_own(entry.key)) {
        FieldSpec spec = field->spec;
        // What a command measures, its own program decides.
        if (settings_.trainer().is_command() && entry.key == "primary.metric") spec.choices = nullptr;
        watch([&] { read_field(spec, field->of(source_.matrix), entry.value, problems_); }, decides_cells(entry.key));
      } else if (entry.key != "axes" && entry.key != "reference") {
        watch([&] { read_setting(entry); });
      }
    }
    if (is_map_ && find("name") == nullptr) {
      problems_.add({0, 1, 1}, "name is missing: it names the output folder");
    }
    if (find("reference") != nullptr) source_.reference_given = true;
    const bool needed = asked_by(source_.matrix).references == References::given;
    if (is_map_ && needed && !source_.reference_given) {
      add_unsound({0, 1, 1}, "reference is missing: what every cell should equal, such as {layout: 1x24}");
    }
    if (!is_map_) source_.sound = false;
  }

  // One choice of a RunConfig field, as a list of its values.
  template <class T>
  std::vector<T> values_of(const Entry& entry, std::string_view key) {
    Entry named = entry;
    named.key = key;
    std::vector<T> values;
    if (const std::optional<Choice> choice = settings_.choice(named)) {
      for (const FieldValue& value : choice->values) {
        if constexpr (std::is_enum_v<T>) {
          values.push_back(static_cast<T>(std::get<Word>(value).index));
        } else {
          values.push_back(std::get<T>(value));
        }
      }
    }
    return values;
  }

  std::vector<Rule>* rules_of(std::string_view key) {
    if (key == "exclude") return &source_.exclude;
    if (key == "power_controls") return &source_.power_controls;
    return key == "noise_of" ? &source_.noise_of : nullptr;
  }

  void read_noise(const Entry& entry) {
    source_.matrix.noise = values_of<Perturbation>(entry, "perturb");
    if (std::erase(source_.matrix.noise, Perturbation::none) > 0) {
      problems_.add(entry.place, "an A/A pair must differ in something: none is not allowed");
    }
  }

  void read_timed_layouts(const Entry& entry) {
    source_.matrix.timing.layouts = values_of<Layout>(entry, "layout");
  }

  void read_setting(const Entry& entry) {
    std::vector<std::string_view> others = section_keys();
    for (const MatrixField& field : matrix_fields()) others.push_back(field.spec.key);
    const std::optional<Setting> setting = settings_.setting(entry, std::move(others));
    if (!setting) return;
    const std::string_view key = setting->field->spec.key;
    if (key.starts_with("mutant.") || key.starts_with("second_mutant.")) {
      source_.faults.push_back(*setting);
    } else {
      store(setting->field->of(source_.base), setting->value);
    }
  }

  void read_axes(const Entry& entry) {
    source_.places["axes"] = entry.place;
    if (!entry.value.is_map() || entry.value.keys.empty()) {
      add_unsound(entry.value.is_map() ? entry.value.place : entry.place,
                  "axes must be a map of keys to lists of values");
      return;
    }
    watch([&] {
      for (const Entry& axis : entries_of(entry.value, problems_, groups())) {
        if (!axis.value.is_sequence()) {
          problems_.add(axis.value.place.line > 0 ? axis.value.place : axis.place,
                        fmt::format("axis {} must be a list of values, not {}", axis.key, got(axis.value)));
        } else if (axis.value.items.empty()) {
          problems_.add(axis.value.place, fmt::format("axis {} is empty", axis.key));
        } else if (std::optional<Choice> choice = settings_.choice(axis)) {
          source_.axes.push_back(std::move(*choice));
          source_.places[axis.key] = axis.place;
        }
      }
    });
  }

  // A list whose items are maps; complains about everything else.
  std::vector<const YamlNode*> maps_of(const Entry& entry) {
    std::vector<const YamlNode*> maps;
    if (!entry.value.is_sequence()) {
      problems_.add(entry.value.place.line > 0 ? entry.value.place : entry.place,
                    fmt::format("{} must be a list of maps, not {}", entry.key, got(entry.value)));
      return maps;
    }
    for (const YamlNode& item : entry.value.items) {
      if (item.is_map() && !item.keys.empty()) {
        maps.push_back(&item);
      } else {
        problems_.add(item.place, fmt::format("an item of {} must be a map with at least one key, not {}",
                                              entry.key, item.is_map() ? "an empty one" : got(item)));
      }
    }
    return maps;
  }

  void read_rules(const Entry& entry, std::vector<Rule>& rules) {
    watch([&] {
      for (const YamlNode* map : maps_of(entry)) rules.push_back(settings_.rule(*map));
    });
  }

  void read_include(const Entry& entry) {
    watch([&] {
      for (const YamlNode* map : maps_of(entry)) {
        source_.include.push_back(read_included(*map));
        source_.places["include"] = map->place;
      }
    });
  }

  // A cell's settings; its `reference:` changes the matrix's reference for it alone, `seeds:` are its own.
  Included read_included(YamlNode map) {
    Included included;
    for (std::size_t i = map.keys.size(); i-- > 0;) {
      const YamlNode& value = map.items[i];
      if (map.keys[i].text == "seeds") {
        read_seeds(value, included.seeds, problems_);
      } else if (map.keys[i].text != "reference") {
        continue;
      } else if (value.is_map() && !value.keys.empty()) {
        included.reference = settings_.settings(value);
      } else {
        problems_.add(map.keys[i].place, fmt::format("reference must be a map, not {}", got(value)));
      }
      map.keys.erase(map.keys.begin() + static_cast<std::ptrdiff_t>(i));
      map.items.erase(map.items.begin() + static_cast<std::ptrdiff_t>(i));
    }
    included.settings = settings_.settings(map);
    included.place = included.settings.empty() ? map.place : included.settings.front().place;
    return included;
  }

  void read_expect(const Entry& entry) {
    for (const YamlNode* map : maps_of(entry)) {
      const std::size_t before = problems_.size();
      ExpectRule rule;
      rule.when.place = map->place;
      bool has_verdict = false;
      for (std::size_t i = 0; i < map->keys.size(); ++i) {
        const std::string& key = map->keys[i].text;
        const YamlNode& value = map->items[i];
        if (key == "when" && value.is_map()) {
          rule.when = settings_.rule(value);
          rule.when.place = map->place;
        } else if (key == "when") {
          problems_.add(map->keys[i].place, fmt::format("when must be a map, not {}", got(value)));
        } else if (key == "verdict") {
          has_verdict = true;
          read_verdicts(value, map->keys[i].place, rule.verdicts);
        } else {
          report_unknown_key(key, map->keys[i].place, {"when", "verdict"}, problems_);
        }
      }
      if (!has_verdict) problems_.add(map->place, "an expectation needs a verdict");
      // A rule that was misread may match nothing: that would be no news.
      if (problems_.size() == before) source_.expect.push_back(std::move(rule));
    }
  }

  void read_verdicts(const YamlNode& node, const Place& key_place, std::vector<VerdictKind>& verdicts) {
    const std::vector<std::string_view> names(verdict_names().begin(), verdict_names().end());
    if (node.is_null() || node.is_map() || (node.is_sequence() && node.items.empty())) {
      problems_.add(key_place, "verdict must be a verdict or a list of them");
      return;
    }
    for (const YamlNode& item : node.is_sequence() ? node.items : std::vector<YamlNode>{node}) {
      const auto at = std::find(names.begin(), names.end(), item.text);
      if (!item.is_scalar() || at == names.end()) {
        problems_.add(item.place,
                      fmt::format("unknown verdict {}; verdicts are {}", got(item), fmt::join(names, ", ")),
                      nearest(item.text, names));
      } else {
        verdicts.push_back(static_cast<VerdictKind>(at - names.begin()));
      }
    }
  }

  void read_reference() {
    watch([&] {
      for (const Entry& entry : reference_) {
        if (entry.key != "same_as") {
          if (std::optional<Setting> setting = settings_.setting(entry, {"same_as"})) {
            source_.places.emplace(entry.key, entry.place);
            source_.reference.push_back(std::move(*setting));
          }
        } else if (entry.value.is_scalar() && entry.value.text == "cell") {
          source_.same_as_cell = true;
        } else {
          problems_.add(entry.place, fmt::format("same_as must be cell, not {}", got(entry.value)));
        }
      }
    });
  }

  Problems& problems_;
  SettingsReader settings_;
  MatrixSource source_;
  std::vector<Entry> top_;
  std::vector<Entry> reference_;
  bool is_map_ = false;
  bool trainer_is_set_ = false;
};

}  // namespace

std::vector<std::string_view> section_keys() {
  std::vector<std::string_view> keys(kSections.begin(), kSections.end());
  for (const QuestionPlan* question : question_plans()) {
    if (question->keys == nullptr) continue;
    for (const QuestionKey& own : question->keys()) keys.push_back(own.key);
  }
  return keys;
}

MatrixSource read_source(const std::string& text, const std::string& file_name, const Overrides& overrides,
                         Problems& problems) {
  SourceReader reader(file_name, problems);
  constexpr std::string_view kTrainer = "trainer=";
  for (const std::string& option : overrides.set) {
    if (option.starts_with(kTrainer)) reader.train(std::string_view(option).substr(kTrainer.size()));
  }
  reader.read_text(text);
  for (const std::string& option : overrides.set) reader.read_set(option);
  return reader.finish(overrides);
}

}  // namespace lockstep
