#include "harness/plan/matrix/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <unordered_map>

#include "harness/base/machine.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan_history.h"

// From axes, includes and rules to named cells with their references.

namespace lockstep {
namespace {

constexpr std::size_t kMostCells = 100000;

using Fields = std::vector<const RunField*>;

void add_field(Fields& fields, const RunField* field) {
  if (std::find(fields.begin(), fields.end(), field) == fields.end()) fields.push_back(field);
}

std::string setting_text(const RunField& field, const RunConfig& config) {
  return fmt::format(" {}={}", field.spec.key, text_of(field.of(config)));
}

class Expansion {
 public:
  Expansion(const MatrixSource& source, Problems& problems) : source_(source), problems_(problems) {
    for (const Choice& axis : source.axes) axis_fields_.push_back(axis.field);
  }

  std::vector<Cell> run() {
    std::size_t product = source_.axes.empty() && !source_.include.empty() ? 0 : 1;
    for (const Choice& axis : source_.axes) {
      product *= axis.values.size();
      if (product > kMostCells) {
        problems_.add(source_.place_of("axes"), fmt::format("the axes make more than {} cells", kMostCells));
        return {};
      }
    }
    excluded_.assign(source_.exclude.size(), false);
    for (std::size_t i = 0; i < product; ++i) add_product_cell(i);
    for (std::size_t i = 0; i < source_.exclude.size(); ++i) {
      if (!excluded_[i]) report_no_match(source_.exclude[i], "exclude");
    }
    for (const Included& extra : source_.include) add_included_cell(extra);
    for (std::size_t i = 0; i < cells_.size(); ++i) name_cell(i);
    for (Cell& cell : cells_) add_reference(cell);
    mark_power_controls();
    set_expectations();
    add_noise();
    return std::move(cells_);
  }

 private:
  void add_product_cell(std::size_t index) {
    RunConfig config = cell_base();
    // The first axis turns slowest, as written.
    for (std::size_t a = source_.axes.size(); a-- > 0;) {
      const Choice& axis = source_.axes[a];
      store(axis.field->of(config), axis.values[index % axis.values.size()]);
      index /= axis.values.size();
    }
    bool keep = true;
    for (std::size_t i = 0; i < source_.exclude.size(); ++i) {
      if (source_.exclude[i].matches(config)) {
        excluded_[i] = true;
        keep = false;
      }
    }
    if (keep) add_cell(std::move(config), axis_fields_, source_.place_of("axes"));
  }

  void add_included_cell(const Included& extra) {
    RunConfig config = cell_base();
    // An included cell names what is special about it; of the other axes it has the first value.
    for (const Choice& axis : source_.axes) store(axis.field->of(config), axis.values.front());
    apply(extra.settings, config);
    Fields fields = axis_fields_;
    for (const Setting& setting : extra.settings) add_field(fields, setting.field);
    if (!extra.seeds.empty()) config.seed = extra.seeds.front();
    add_cell(std::move(config), std::move(fields), extra.place, extra.reference);
    for (const Setting& setting : extra.settings) cells_.back().places[std::string(setting.field->spec.key)] = setting.place;
    cells_.back().seeds = extra.seeds;
  }

  RunConfig cell_base() const {
    RunConfig config = source_.base;
    apply(source_.faults, config);
    return config;
  }

  void add_cell(RunConfig config, Fields fields, const Place& place, std::vector<Setting> reference = {}) {
    if (source_.matrix.ranks == RanksPolicy::fit && config.layout.world_size <= room_for_ranks()) config.backend = Backend::gloo;
    if (config.layout.world_size == 1) config.backend = Backend::emulated;
    Cell cell;
    for (const RunField* field : fields) {
      cell.settings.emplace_back(field->spec.key, text_of(field->of(config)));
    }
    for (const RunField* field : axis_fields_) cell.declared.emplace_back(field->spec.key);
    cell.config = std::move(config);
    cell.places[""] = place;
    for (const std::vector<Setting>* settings : {&std::as_const(source_.reference), &std::as_const(reference)}) {
      for (const Setting& setting : *settings) cell.places["reference." + std::string(setting.field->spec.key)] = setting.place;
    }
    cells_.push_back(std::move(cell));
    fields_.push_back(std::move(fields));
    places_.push_back(place);
    own_references_.push_back(std::move(reference));
  }

  // Layout and what names the objective first, then what is neither the default nor the matrix's base value.
  std::string name_of_config(const RunConfig& config, const Fields& fields) const {
    const TrainerSpec& trainer = spec_of(config);
    const RunConfig defaults(trainer);
    static const RunField* const layout = find_core_field("layout");
    const RunField* const naming = find_field(trainer, trainer.naming_key);
    std::string name = text_of(layout->of(config));
    if (naming != nullptr && (std::find(fields.begin(), fields.end(), naming) != fields.end() ||
                              !equal(naming->of(config), naming->of(defaults)))) {
      name += " " + text_of(naming->of(config));
    }
    for (const RunField* field : fields) {
      if (field == layout || field == naming) continue;
      const FieldRef value = field->of(config);
      if (!equal(value, field->of(defaults)) || !equal(value, field->of(source_.base))) {
        name += setting_text(*field, config);
      }
    }
    return name;
  }

  // " against 1x3": what a cell's own reference block says, but for its length, which follows from the batch.
  std::string against(const std::vector<Setting>& settings) const {
    static const RunField* const layout = find_core_field("layout");
    std::string text;
    for (const Setting& setting : settings) {
      RunConfig config(spec_of(source_.base));
      store(setting.field->of(config), setting.value);
      if (setting.field == layout) text = " " + text_of(layout->of(config)) + text;
      if (setting.field == layout || setting.field->spec.key == "steps" ||
          setting.field->spec.key == "eval_every") {
        continue;
      }
      text += setting_text(*setting.field, config);
    }
    return text.empty() ? "" : " against" + text;
  }

  void name_cell(std::size_t index) {
    Cell& cell = cells_[index];
    cell.short_name = name_of_config(cell.config, fields_[index]);
    cell.name = cell.short_name + against(own_references_[index]);
    const auto [at, is_new] = by_name_.emplace(cell.name, index);
    if (is_new) return;
    if (same_config(cells_[at->second].config, cell.config) && own_references_[index].empty()) {
      problems_.add(places_[index], fmt::format("cell {} occurs twice in the matrix", in_quotes(cell.name)));
      return;
    }
    // A name says every value that differs, so only a text that looks like a setting can bring two together.
    cell.name += " #" + config_hash(cell.config).substr(0, 8);
    by_name_.emplace(cell.name, index);
  }

  // One process that holds the rows of all ranks and computes by the loss's plain reference what they mean.
  // How ranks divide the work is of no meaning to it, so cells that differ in that alone share a reference.
  static RunConfig oracle_of(const RunConfig& cell) {
    static const RunConfig defaults;
    RunConfig oracle = cell;
    oracle.layout = {1, cell.layout.global_batch()};
    oracle.oracle_world = cell.layout.world_size;
    oracle.backend = Backend::emulated;
    oracle.bucket_cap_bytes = defaults.bucket_cap_bytes;
    oracle.gradient_as_bucket_view = defaults.gradient_as_bucket_view;
    oracle.find_unused_parameters = defaults.find_unused_parameters;
    if (const auto make = spec_of(cell).make_oracle; make != nullptr) make(cell, oracle);
    return oracle;
  }

  void add_reference(Cell& cell) {
    const std::size_t index = static_cast<std::size_t>(&cell - cells_.data());
    const QuestionPlan& asks = asked_by(source_.matrix);
    if (asks.references == References::own) {
      cell.reference = cell.config;
      cell.reference_name = cell.name;
      return;
    }
    const bool derived = asks.derives_reference();
    cell.paired = source_.same_as_cell;
    Fields fields = derived || source_.same_as_cell ? fields_[index] : Fields{};
    cell.reference = derived ? oracle_of(cell.config) : source_.same_as_cell ? cell.config : source_.base;
    if (derived) add_field(fields, find_core_field("oracle_world"));
    // A planted fault is a planted difference: the reference has one only if its own block names it.
    cell.reference.mutant = cell.reference.second_mutant = MutantConfig{};
    // It is the run that was never stopped.
    if (derived || source_.same_as_cell) {
      begin_by_itself(cell.reference);
      for (const char* key : {"resume_from", "resume_step"}) std::erase(fields, find_core_field(key));
    }
    const std::vector<Setting>& own = own_references_[index];
    for (const std::vector<Setting>* settings : {&source_.reference, &own}) {
      apply(*settings, cell.reference);
      for (const Setting& setting : *settings) add_field(fields, setting.field);
    }
    if (cell.reference.layout.world_size == 1) cell.reference.backend = Backend::emulated;
    cell.reference_name = reference_name(cell.reference, fields);
    if (cell.reference_name == cell.name && !same_config(cell.config, cell.reference))
      cell.reference_name = "reference of " + cell.name;
    cell.anchor = same_config(cell.config, cell.reference);
    // With `same_as: cell` and a question about outcomes, the product of the axes may contain the
    // reference itself: that cell stands beside the others and is not
    // judged. Anywhere else a cell that equals its reference compares nothing, and is refused.
    if (cell.anchor && !(source_.same_as_cell && asks.by_outcome)) {
      problems_.add(places_[index],
                    fmt::format("cell {} is its own reference, so nothing would be compared; exclude it",
                                in_quotes(cell.name)));
    }
  }

  std::string reference_name(const RunConfig& config, const Fields& fields) {
    std::string name = name_of_config(config, fields);
    const auto [at, is_new] = references_.emplace(name, config);
    if (!is_new && !same_config(at->second, config)) name += " #" + config_hash(config).substr(0, 8);
    return name;
  }

  void mark_power_controls() {
    for (const Rule& rule : source_.power_controls) {
      bool any = false;
      for (Cell& cell : cells_) {
        if (!rule.matches(cell.config)) continue;
        any = cell.power_control = true;
        cell.expected = {VerdictKind::divergent};
      }
      if (!any) report_no_match(rule, "power control");
    }
  }

  // The first cell's reference against itself with one thing changed that ought not to matter; and so each cell
  // that noise_of names, whose runs may be less steady than the reference's.
  void add_noise() {
    if (cells_.empty()) return;
    const std::size_t count = cells_.size();
    const auto names = [&](const Rule& rule, const Cell& cell) { return !cell.anchor && rule.matches(cell.config); };
    add_noise_pairs(RunConfig(cells_.front().reference), std::string(cells_.front().reference_name), {});
    for (std::size_t i = 0; i < count; ++i) {
      const auto named = [&](const Rule& rule) { return names(rule, cells_[i]); };
      if (!std::any_of(source_.noise_of.begin(), source_.noise_of.end(), named)) continue;
      add_noise_pairs(RunConfig(cells_[i].config), std::string(cells_[i].name), std::vector(cells_[i].seeds));
    }
    for (const Rule& rule : source_.noise_of) {
      const auto own = [&](const Cell& cell) { return !cell.noise && names(rule, cell); };
      if (source_.matrix.noise.empty()) {
        problems_.add(rule.place, "noise_of sets which cells get A/A pairs, and noise what differs in them: it is "
                                  "missing");
      } else if (std::none_of(cells_.begin(), cells_.end(), own)) {
        report_no_match(rule, "rule of A/A pairs");
      }
    }
  }

  void add_noise_pairs(const RunConfig& config, const std::string& name, const std::vector<int64_t>& seeds) {
    static const RunField* const perturb = find_core_field("perturb");
    for (const Perturbation kind : source_.matrix.noise) {
      Cell noise;
      noise.config = noise.reference = config;
      noise.config.perturb = kind;
      noise.reference_name = name;
      noise.name = "A/A " + name + setting_text(*perturb, noise.config);
      noise.settings.emplace_back("perturb", text_of(perturb->of(noise.config)));
      noise.declared = {"perturb"};
      noise.seeds = seeds;
      noise.noise = true;
      cells_.push_back(std::move(noise));
    }
  }

  void set_expectations() {
    std::vector<const ExpectRule*> taken(cells_.size(), nullptr);  // the rule that holds for each cell
    for (const ExpectRule& rule : source_.expect) {
      std::vector<const ExpectRule*> before;
      bool holds = false;
      for (std::size_t i = 0; i < cells_.size(); ++i) {
        if (!rule.when.matches(cells_[i].config)) continue;
        if (taken[i] != nullptr) {
          before.push_back(taken[i]);
          continue;
        }
        cells_[i].expected = rule.verdicts;
        for (const Choice& condition : rule.when.conditions) cells_[i].declared.emplace_back(condition.field->spec.key);
        taken[i] = &rule;
        holds = true;
      }
      if (holds) continue;
      before.empty() ? report_no_match(rule.when, "expectation") : report_covered(rule, before);
    }
  }

  // The first rule that matches holds: one whose cells all have such a rule says nothing.
  void report_covered(const ExpectRule& rule, const std::vector<const ExpectRule*>& before) {
    // On the command line an axis may have been narrowed to the cells that the earlier rules are about.
    const auto is_set = [this](const Choice& axis) {
      return source_.set_keys.contains(axis.field->spec.key);
    };
    if (std::any_of(source_.axes.begin(), source_.axes.end(), is_set)) return;
    std::set<std::pair<int, int>> places;
    for (const ExpectRule* each : before) places.insert({each->when.place.line, each->when.place.column});
    std::string where;
    for (const auto& [line, column] : places)
      where += fmt::format("{}{}:{}", where.empty() ? "" : ", ", line, column);
    problems_.add(
        rule.when.place,
        fmt::format("this expectation never applies: {} taken by {} at {}",
                    before.size() == 1 ? "the one cell that it matches is"
                                       : fmt::format("all {} cells that it matches are", before.size()),
                    places.size() == 1 ? "the one" : "those", where));
  }

  // On the command line an axis may have been narrowed: then it is no mistake of the file's that a rule lost
  // its cells.
  void report_no_match(const Rule& rule, std::string_view what) {
    const auto is_set = [&rule](const std::string& key) { return rule.mentions(key); };
    if (std::any_of(source_.set_keys.begin(), source_.set_keys.end(), is_set)) return;
    problems_.add(rule.place, fmt::format("this {} matches no cell", what));
  }

  const MatrixSource& source_;
  Problems& problems_;
  Fields axis_fields_;
  std::vector<bool> excluded_;
  std::vector<Cell> cells_;
  std::vector<Fields> fields_;                        // the keys that each cell was given, by cell
  std::vector<Place> places_;                         // by cell
  std::vector<std::vector<Setting>> own_references_;  // what a cell's own reference block says, by cell
  std::unordered_map<std::string, std::size_t> by_name_;
  std::unordered_map<std::string, RunConfig> references_;
};

}  // namespace

std::vector<Cell> expand_cells(const MatrixSource& source, Problems& problems) {
  return Expansion(source, problems).run();
}

namespace {

bool is_number(const std::string& text) { return !text.empty() && text.back() >= '0' && text.back() <= '9'; }

}  // namespace

std::vector<std::string_view> split_words(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(at), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::vector<Setting> settings_of(std::string_view text, const TrainerSpec& trainer, const Place& place, Problems& problems) {
  SettingsReader reader("", problems);
  reader.read_for(trainer);
  std::vector<Setting> settings;
  for (const std::string_view part : split_words(text, ' ')) {
    const std::size_t sign = std::min(part.find('='), part.size() - 1);
    Entry one;
    one.key = std::string(part.substr(0, sign));
    one.place = place;
    one.value = read_yaml(std::string(part.substr(sign + 1)), place.source, problems);
    one.value.place = place;
    if (std::optional<Setting> setting = reader.setting(one)) settings.push_back(std::move(*setting));
  }
  return settings;
}

bool is_closed_form(double factor, double form) { return std::abs(factor - form) < 1e-9 * std::abs(form); }

int64_t shown_at(const MutantEntry& entry, int64_t step, int64_t epoch_steps) {
  if (!entry.at_epoch || epoch_steps <= 0) return step + entry.step_offset;
  const int64_t first = std::max<int64_t>(step, 1);
  return (first + epoch_steps - 1) / epoch_steps * epoch_steps + entry.step_offset;
}

int64_t steps_per_epoch(const RunConfig& config) {
  const std::optional<SampleCounts> samples = spec_of(config).counted_samples(config);
  if (!samples) return 0;
  const int64_t batch = config.layout.global_batch();
  return config.data.drop_last ? samples->train / batch : (samples->train + batch - 1) / batch;
}

std::optional<PlantedFault> first_planted(const RunConfig& config) {
  std::optional<PlantedFault> first;
  for (const MutantConfig* mutant : {&config.mutant, &config.second_mutant}) {
    if (mutant->name == "none") continue;
    const MutantEntry* entry = find_mutant(mutant->name);
    if (entry == nullptr) throw ConfigError("unknown mutant " + in_quotes(mutant->name));
    const PlantedFault fault{entry, *mutant, shown_at(*entry, mutant->step, steps_per_epoch(config))};
    if (!first || fault.step < first->step) first = fault;
  }
  return first;
}

std::vector<std::string> right_causes(const PlantedFault& fault, int world_size) {
  constexpr std::string_view kUnexplained = "unexplained";
  std::vector<std::string> all;
  for (const std::string_view code : split_words(fault.entry->causes, ' ')) all.emplace_back(code);
  const bool admits = std::find(all.begin(), all.end(), kUnexplained) != all.end();
  if (!fault.entry->draws.factor || !admits) return all;
  const double factor = fault.mutant.factor;
  std::vector<std::string> right;
  for (const std::string& code : all) {
    const bool times = code.find("-times-") != std::string::npos && is_closed_form(factor, world_size);
    const bool over = code.find("-over-") != std::string::npos && is_closed_form(factor, 1.0 / world_size);
    const bool flipped = code.find("flipped") != std::string::npos && is_closed_form(factor, -1);
    if (times || over || flipped) right.push_back(code);
  }
  return right.empty() ? std::vector<std::string>{std::string(kUnexplained)} : right;
}

bool names_place(const PlantedFault& fault, const std::string& phase, const std::string& where) {
  const std::vector<std::string_view> phases = split_words(fault.entry->phase, '|');
  if (!phases.empty() && std::find(phases.begin(), phases.end(), phase) == phases.end()) return false;
  if (fault.entry->where.empty()) return true;
  for (const std::string_view part : split_words(fault.entry->where, '|')) {
    std::string wanted(part);
    if (const std::size_t at = wanted.find("$tensor"); at != std::string::npos) {
      wanted.replace(at, std::string_view("$tensor").size(), fault.mutant.tensor);
    }
    if (!where.starts_with(wanted)) continue;
    // "bucket 1" must not be mistaken for "bucket 12", nor a tensor for one whose name goes on.
    const char next = where.size() > wanted.size() ? where[wanted.size()] : ' ';
    const bool goes_on = part.find("$tensor") != std::string_view::npos
                             ? std::isalnum(static_cast<unsigned char>(next)) || next == '_' || next == '.'
                             : is_number(wanted) && next >= '0' && next <= '9';
    if (!goes_on) return true;
  }
  return false;
}

std::string drawn_words(const MutantEntry& entry, const MutantConfig& mutant) {
  std::string text = fmt::format("step {}", mutant.step);
  if (entry.draws.rank) text += fmt::format(", rank {}", mutant.rank);
  if (entry.draws.tensor) text += ", " + mutant.tensor;
  if (entry.draws.bit) text += fmt::format(", bit {}", mutant.bit);
  if (entry.draws.factor) text += fmt::format(", factor {:.6g}", mutant.factor);
  return text;
}

}  // namespace lockstep
