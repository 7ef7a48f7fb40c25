#include "harness/answer/questions/trials.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <set>

#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/cells.h"

namespace lockstep {
namespace {

constexpr FieldSpec kStepOfFault{.key = "step", .range = ranges::kStep, .unit = "steps", .help = "step at which it must show first"};
constexpr FieldSpec kRankOfFault{
    .key = "rank", .range = {0, 4095}, .unit = "", .help = "with `phase: failed`: rank that must be named; default: any"};

/// "env.MISTAKE=sum", "layout=3x8 env.MISTAKE=[sum, mean]".
std::string name_of_rule(const Rule& rule, const TrainerSpec& trainer) {
  RunConfig scratch(trainer);
  std::string name;
  for (const Choice& condition : rule.conditions) {
    std::string values;
    for (const FieldValue& value : condition.values) {
      store(condition.field->of(scratch), value);
      values += (values.empty() ? "" : ", ") + text_of(condition.field->of(scratch));
    }
    name += fmt::format("{}{}={}", name.empty() ? "" : " ", condition.field->spec.key, condition.values.size() == 1 ? values : "[" + values + "]");
  }
  return name;
}

class OwnFaultReader {
 public:
  OwnFaultReader(const TrainerSpec& trainer, Problems& problems) : problems_(problems), settings_("", problems) { settings_.read_for(trainer); }

  OwnFault read(const YamlNode& map) {
    OwnFault fault;
    for (std::size_t i = 0; i < map.keys.size(); ++i) read_key(map.keys[i], map.items[i], fault);
    fault.when.place = map.place;
    fault.name = name_of_rule(fault.when, settings_.trainer());
    const auto has = [&](std::string_view key) { return std::ranges::find(map.keys, key, &YamlNode::text) != map.keys.end(); };
    if (!has("when")) problems_.add(map.place, "a fault needs when: the values that plant it, such as {env.MISTAKE: sum}");
    if (!has("cause")) problems_.add(map.place, "a fault needs cause: the code that names it rightly (`lockstep explain` lists all), or unexplained");
    if (fault.rank >= 0 && !fault.fails()) problems_.add(map.place, "the rank of a fault is asked where the run ends by it: it needs phase: failed");
    if (fault.fails() && !fault.tensor.empty()) problems_.add(map.place, "a run that ends by its fault shows no tensor: tensor has no effect with phase: failed");
    return fault;
  }

 private:
  void read_key(const YamlNode& key, const YamlNode& value, OwnFault& fault) {
    const Place place = value.place.line > 0 ? value.place : key.place;
    if (key.text == "when" && value.is_map() && !value.keys.empty()) {
      fault.when = settings_.rule(value);
    } else if (key.text == "when") {
      problems_.add(place, fmt::format("when must be a map with at least one key, not {}", value.is_map() ? "an empty one" : got(value)));
    } else if (key.text == "cause") {
      fault.causes = joined(key, value, ' ');
      fault.cause_place = place;
    } else if (key.text == "step") {
      read_field(kStepOfFault, &fault.step, value, problems_);
    } else if (key.text == "phase") {
      fault.phase = joined(key, value, '|');
      fault.phase_place = place;
    } else if (key.text == "tensor") {
      fault.tensor = joined(key, value, '|');
    } else if (key.text == "rank") {
      read_field(kRankOfFault, &fault.rank, value, problems_);
    } else {
      report_unknown_key(key.text, key.place, {"when", "cause", "step", "phase", "tensor", "rank"}, problems_);
    }
  }

  static std::string got(const YamlNode& node) { return node.is_scalar() ? in_quotes(node.text) : name_of(node.kind); }

  /// One text or a list of texts.
  std::string joined(const YamlNode& key, const YamlNode& value, char between) {
    std::string all;
    for (const YamlNode& item : value.is_sequence() ? value.items : std::vector<YamlNode>{value}) {
      if (item.is_scalar() && !item.text.empty())
        all += (all.empty() ? "" : std::string(1, between)) + item.text;
      else
        problems_.add(item.place.line > 0 ? item.place : key.place, fmt::format("{} must be a text, not {}", key.text, got(item)));
    }
    return all;
  }

  Problems& problems_;
  SettingsReader settings_;
};

void check_own_fault(const OwnFault& fault, const MatrixSource& source, const std::vector<Cell>& cells, Problems& problems) {
  const auto plants = [&](const Cell& cell) { return fault.when.matches(cell.config); };
  const auto planted = std::ranges::find_if(cells, plants);
  if (planted == cells.end()) {
    // On the command line an axis may have been narrowed to others.
    const auto is_set = [&](const std::string& key) { return fault.when.mentions(key); };
    if (std::ranges::none_of(source.set_keys, is_set)) problems.add(fault.when.place, "this fault matches no cell");
  } else if (fault.when.matches(planted->reference)) {
    problems.add(fault.when.place, fmt::format("the reference of cell {} has {} too, so nothing is planted", in_quotes(planted->name), fault.name));
  } else if (fault.step >= planted->config.steps) {
    problems.add(fault.when.place, fmt::format("step {} of this fault is never reached in {} steps", fault.step, planted->config.steps));
  }
}

/// Of two faults the one that must show first counts: which it is must be known.
void check_own_pair(const Cell& cell, const std::vector<const OwnFault*>& planted, Problems& problems) {
  if (planted.size() < 2 || planted[0]->step != planted[1]->step) return;
  problems.add(planted[1]->when.place,
               fmt::format("cell {} has two faults that must show first at step {}, so nobody can say which is found: exclude it", in_quotes(cell.name),
                           planted[0]->step));
}

}  // namespace

std::vector<OwnFault> read_own_faults(const Entry& entry, const TrainerSpec& trainer, Problems& problems) {
  std::vector<OwnFault> faults;
  OwnFaultReader reader(trainer, problems);
  if (!entry.value.is_sequence() || entry.value.items.empty()) {
    problems.add(entry.place, "detection.faults must be a list of maps, such as [{when: {env.MISTAKE: sum}, cause: loss-times-world}]");
    return faults;
  }
  for (const YamlNode& item : entry.value.items) {
    if (item.is_map())
      faults.push_back(reader.read(item));
    else
      problems.add(item.place, "a fault must be a map, such as {when: {env.MISTAKE: sum}, cause: loss-times-world}");
  }
  return faults;
}

SchemaJson own_faults_schema() {
  const SchemaJson text{{"type", "string"}};
  const SchemaJson texts{{"anyOf", {text, {{"type", "array"}, {"items", text}, {"minItems", 1}}}}};
  OwnFault usual;
  SchemaJson fault = object_schema();
  fault["properties"]["when"] = {{"$ref", "#/definitions/rule"}};
  const auto add = [&](const char* key, SchemaJson schema, const char* help) {
    schema["description"] = help;
    fault["properties"][key] = std::move(schema);
  };
  add("cause", texts, "codes that name it rightly, or unexplained");
  fault["properties"]["step"] = field_schema(kStepOfFault, &usual.step);
  add("phase", texts, "phase of the step in which it must show first, or `failed` if the run ends by it; default: not asked");
  add("tensor", texts, "what the place that is named must begin with; default: not asked");
  fault["properties"]["rank"] = number_schema("integer", kRankOfFault.range);
  fault["properties"]["rank"]["description"] = kRankOfFault.help;
  fault["required"] = {"when", "cause"};
  return list_schema(std::move(fault), "of `trainer: command`: what its switches plant; a cell that none of them matches is clean");
}

std::vector<const OwnFault*> planted_in(const std::vector<OwnFault>& faults, const RunConfig& config) {
  std::vector<const OwnFault*> planted;
  for (const OwnFault& fault : faults) {
    if (fault.when.matches(config)) planted.push_back(&fault);
  }
  std::ranges::stable_sort(planted, {}, &OwnFault::step);
  return planted;
}

std::vector<Cell> own_fault_cells(const MatrixSource& source, const std::vector<OwnFault>& faults, Problems& problems) {
  const std::vector<Cell> cells = expand_cells(source, problems);
  for (const OwnFault& fault : faults) check_own_fault(fault, source, cells, problems);
  std::vector<Cell> trials;
  for (const Cell& cell : cells) {
    const std::vector<const OwnFault*> planted = planted_in(faults, cell.config);
    check_own_pair(cell, planted, problems);
    const std::vector<int64_t> seeds = seeds_of(source.matrix, cell);
    for (const int64_t seed : seeds) {
      Cell& trial = trials.emplace_back(cell);
      if (seeds.size() > 1) trial.name += fmt::format(" #{}", seed);
      trial.seeds = {seed};
      trial.config.seed = trial.reference.seed = seed;
      if (planted.empty())
        trial.expected = {VerdictKind::identical, VerdictKind::within_envelope, VerdictKind::inconclusive};
      else
        trial.expected = {planted.front()->fails() ? VerdictKind::failed : VerdictKind::divergent};
    }
  }
  return trials;
}

namespace {

constexpr std::array<Layout, 4> kLayouts{{{2, 12}, {3, 8}, {4, 6}, {8, 3}}};
constexpr std::array<OptimizerKind, 3> kOptimizers{OptimizerKind::sgd, OptimizerKind::adam,
                                                   OptimizerKind::adamw};
constexpr std::array<TraceLevel, 3> kTraceLevels{TraceLevel::hash, TraceLevel::stats, TraceLevel::full};
constexpr double kClipNorm = 0.1;  // below the usual norm of the small model's gradient, so that it acts
constexpr int kLowestBit = 20;     // what lies below is within rounding between layouts
constexpr int kHighestBit = 31;
constexpr int kVariants = 2;  // of optimizer and clipping for one seed: more would share fewer references
constexpr int64_t kCleanGroup = 4;  // clean pairs of one reference: each layout once, no pair computed twice
constexpr double kHungTimeoutS = 2;

/// Keyed draws: each is a hash of its key, so that none depends on what was drawn before.
class Draws {
 public:
  Draws(int64_t draw_seed, std::string_view name, int64_t trial)
      : key_(fmt::format("{}/{}/{}/", draw_seed, name, trial)) {}

  uint64_t bits(std::string_view what) const {
    const std::string text = key_ + std::string(what);
    return XXH3_64bits(text.data(), text.size());
  }
  /// In [low, high], both included.
  int64_t between(std::string_view what, int64_t low, int64_t high) const {
    return low + static_cast<int64_t>(bits(what) % static_cast<uint64_t>(high - low + 1));
  }
  bool coin(std::string_view what) const { return bits(what) % 2 == 1; }
  template <class List>
  const auto& pick(std::string_view what, const List& list) const {
    return list[bits(what) % list.size()];
  }

 private:
  std::string key_;
};

/// The first key that the mutant's settings give and the trainer lacks; empty: it has them all.
std::string_view lacking_key(const MutantEntry& entry, const TrainerSpec& trainer) {
  for (const std::string_view setting : split_words(entry.settings, ' ')) {
    const std::string_view key = setting.substr(0, setting.find('='));
    if (find_field(trainer, key) == nullptr) return key;
  }
  return {};
}

bool has(const std::vector<Setting>& settings, std::string_view key) {
  return std::any_of(settings.begin(), settings.end(),
                     [key](const Setting& setting) { return setting.field->spec.key == key; });
}

bool fails(const MutantEntry& entry) { return entry.phase == "failed"; }

class Expansion {
 public:
  Expansion(MatrixSource& source, Problems& problems)
      : source_(source), problems_(problems), detection_(section_of<DetectionConfig>(source.matrix)) {
    const TrainerSpec& trainer = spec_of(source.base);
    for (const MutantEntry& entry : mutant_entries()) {
      if (is_wanted(entry, trainer)) entries_.push_back(&entry);
    }
    // Data of ours: a mistake in them is a problem of the config's first line.
    for (const MutantEntry* entry : entries_) settings_.push_back(settings_of(entry->settings, trainer, {0, 1, 1}, problems));
    parameters_ = trainer.parameters(source.base, source.base.data.channels);
  }

  std::vector<Cell> run() {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      for (const int64_t seed : source_.matrix.seeds) add_single(i, seed, source_.base.arithmetic);
    }
    if (detection_.exact && source_.base.arithmetic != Arithmetic::exact) {
      for (std::size_t i = 0; i < entries_.size(); ++i) {
        const bool acts = entries_[i]->beyond_exact.empty() && !fails(*entries_[i]);
        for (const int64_t seed : source_.matrix.seeds) {
          if (acts) add_single(i, seed, Arithmetic::exact);
        }
      }
    }
    leave_out();
    for (int64_t pair = 0; pair < detection_.pairs; ++pair) {
      if (!add_pair(pair)) break;
    }
    for (int64_t i = 0; i < detection_.clean; ++i) add_clean(i);
    return std::move(cells_);
  }

 private:
  Place place() const { return source_.place_of("question"); }

  void cannot_act(const MutantEntry& entry, std::string reason) {
    std::vector<LeftOutMutant>& all = detection_.left_out;
    if (std::ranges::find(all, entry.name, &LeftOutMutant::mutant) != all.end()) return;
    all.push_back({std::string(entry.name), std::move(reason)});
  }

  /// Neither pairs nor trials of other seeds take a mutant that cannot act.
  void leave_out() {
    const auto& all = detection_.left_out;
    const auto is_left_out = [&](std::string_view name) {
      return std::ranges::find(all, name, &LeftOutMutant::mutant) != all.end();
    };
    for (std::size_t i = entries_.size(); i-- > 0;) {
      if (!is_left_out(entries_[i]->name)) continue;
      entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
      settings_.erase(settings_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    std::erase_if(cells_, [&](const Cell& cell) { return is_left_out(cell.config.mutant.name); });
    if (!entries_.empty() || all.empty()) return;
    for (const LeftOutMutant& each : all) problems_.add(place(), fmt::format("mutant {} cannot act: {}", each.mutant, each.reason));
  }

  /// What is wrong with the last cell and not with the same run without what its mutant asks for; empty: nothing.
  std::string refused(RunConfig plain) {
    const std::vector<std::string> found = cell_problems(source_, cells_.back());
    if (found.empty()) return "";
    finish("", std::move(plain));
    const std::vector<std::string> without = cell_problems(source_, cells_.back());
    cells_.pop_back();
    for (const std::string& message : found) {
      if (std::ranges::find(without, message) == without.end()) return message;
    }
    return "";
  }

  /// `all` means those that can act in the trainer. A mutant that is named but cannot act there is reported:
  /// a wrong trainer where its run is checked, a missing key here.
  bool is_wanted(const MutantEntry& entry, const TrainerSpec& trainer) {
    const auto& names = detection_.mutants;
    const bool is_named = std::find(names.begin(), names.end(), entry.name) != names.end();
    if (!is_named && !names.empty()) return false;
    const bool of_another = !entry.trainer.empty() && entry.trainer != trainer.name;
    const bool beyond = source_.base.arithmetic == Arithmetic::exact && !entry.beyond_exact.empty();
    if (beyond && is_named) {
      problems_.add(source_.place_of("detection.mutants"),
                    fmt::format("mutant {} does not work with arithmetic: exact: {}", entry.name, entry.beyond_exact));
    }
    if (beyond) return false;
    const std::string_view lacking = of_another ? std::string_view() : lacking_key(entry, trainer);
    if (is_named && !lacking.empty()) {
      problems_.add(source_.place_of("detection.mutants"),
                    fmt::format("mutant {} shows only with the key {}, which the trainer {} does not have", entry.name,
                                lacking, trainer.name));
    }
    return lacking.empty() && (is_named || !of_another);
  }

  /// The run of a trial without its fault. Optimizer and clipping follow from the run's seed and one of few
  /// variants.
  RunConfig faultless(int64_t seed, int64_t variant) const {
    RunConfig config = source_.base;
    config.seed = seed;
    config.steps = detection_.steps;
    const Draws common(detection_.draw_seed, "run", seed * kVariants + variant);
    config.optimizer = common.pick("optimizer", kOptimizers);
    config.clip_norm = common.coin("clip") ? kClipNorm : 0;
    // Rates at which the loss moves within the run.
    config.lr = config.optimizer == OptimizerKind::sgd ? 0.2 : 5e-3;
    return config;
  }

  Layout draw_layout(const Draws& draws, int min_world, const std::vector<Setting>& settings,
                     const RunConfig& config, bool small) const {
    if (has(settings, "layout")) return config.layout;
    std::vector<Layout> fit;
    for (const Layout& layout : kLayouts) {
      if (layout.rows_per_rank % config.accumulation != 0) continue;
      if (layout.world_size >= min_world && !(small && !fit.empty() && layout.world_size > 3))
        fit.push_back(layout);
    }
    return fit.empty() ? kLayouts.back() : draws.pick("layout", fit);
  }

  /// 8x3, or the next layout whose rows can be taken in so many micro-steps.
  Layout most_ranks(const std::vector<Setting>& settings, const RunConfig& config) const {
    if (has(settings, "layout")) return config.layout;
    Layout most = kLayouts.front();
    for (const Layout& layout : kLayouts) {
      if (layout.rows_per_rank % config.accumulation == 0) most = layout;
    }
    return most;
  }

  std::string draw_tensor(const Draws& draws, const MutantDraws& of, double factor, int world) const {
    std::vector<const ModelParameter*> fit;
    for (const ModelParameter& parameter : parameters_) {
      if (parameter.without_gradient || (of.bit && parameter.first_may_be_padding)) continue;
      // A closed form on the temperature alone is another bug's signature, too: nobody could tell them apart.
      const bool closed = is_closed_form(factor, world) || is_closed_form(factor, 1.0 / world);
      if (of.factor && closed && parameter.name.starts_with("temperature")) continue;
      fit.push_back(&parameter);
    }
    return draws.pick("tensor", fit)->name;
  }

  /// Nothing if no step is left at which it shows within the run.
  std::optional<MutantConfig> draw_mutant(const Draws& draws, const MutantEntry& entry,
                                          const RunConfig& config) const {
    MutantConfig mutant;
    const int world = config.layout.world_size;
    mutant.name = std::string(entry.name);
    const int64_t epoch = steps_per_epoch(config);
    int64_t last = std::min(entry.last_step, config.steps - 1);
    while (last >= 0 && shown_at(entry, last, epoch) >= config.steps) --last;
    if (last < entry.first_step) return std::nullopt;
    mutant.step = entry.draws.step ? draws.between("step", entry.first_step, last) : entry.first_step;
    if (entry.draws.rank) mutant.rank = static_cast<int>(draws.between("rank", 0, world - 1));
    // Nothing is within rounding where nothing rounds.
    const int lowest = config.arithmetic == Arithmetic::exact ? 0 : kLowestBit;
    if (entry.draws.bit) mutant.bit = static_cast<int>(draws.between("bit", lowest, kHighestBit));
    if (entry.draws.factor) {
      const std::array<double, 6> factors{static_cast<double>(world), 1.0 / world, 1.001, 3.7, -1.0, 0.5};
      mutant.factor = draws.pick("factor", factors);
    }
    if (entry.draws.tensor) mutant.tensor = draw_tensor(draws, entry.draws, mutant.factor, world);
    return mutant;
  }

  void finish(std::string name, RunConfig config) {
    Cell cell;
    const bool failing = config.mutant.name != "none" && fails(*find_mutant(config.mutant.name));
    const bool planted = config.mutant.name != "none";
    cell.name = std::move(name);
    cell.reference = config;
    RunConfig& reference = cell.reference;
    reference.mutant = reference.second_mutant = MutantConfig{};
    reference.layout = {1, config.layout.global_batch()};
    // One process has all rows, however ranks are partitioned theirs.
    reference.rows = RowPartition::equal;
    // What may differ without changing a number is the base's again, so that references are shared. Without a forced step the free
    // run's own values name the cause.
    reference.backend = Backend::emulated;
    const bool exact = config.arithmetic == Arithmetic::exact;
    reference.trace = exact ? TraceLevel::full : source_.base.trace;
    if (exact && config.mutant.name != "none") config.trace = TraceLevel::full;
    reference.bucket_cap_bytes = source_.base.bucket_cap_bytes;
    reference.gradient_as_bucket_view = source_.base.gradient_as_bucket_view;
    reference.find_unused_parameters = source_.base.find_unused_parameters;
    reference.timeout_s = source_.base.timeout_s;
    cell.reference_name =
        fmt::format("1x{} #{}", reference.layout.rows_per_rank, config_hash(reference).substr(0, 8));
    if (failing)
      cell.expected = {VerdictKind::failed};
    else if (planted)
      cell.expected = {VerdictKind::divergent};
    else
      cell.expected = {VerdictKind::identical, VerdictKind::within_envelope};
    cell.seeds = {config.seed};
    cell.config = std::move(config);
    cells_.push_back(std::move(cell));
  }

  /// Another arithmetic than the matrix's: a free run beside the mutant's own trials, between the layouts that differ most.
  void add_single(std::size_t index, int64_t seed, Arithmetic arithmetic) {
    const MutantEntry& entry = *entries_[index];
    const Draws draws(detection_.draw_seed, entry.name, seed);
    RunConfig config =
        faultless(seed, static_cast<int64_t>(XXH3_64bits(entry.name.data(), entry.name.size()) % kVariants));
    const bool beside = arithmetic != config.arithmetic;
    config.arithmetic = arithmetic;
    RunConfig plain = config;
    lockstep::apply(settings_[index], config);
    config.layout = beside ? most_ranks(settings_[index], config)
                           : draw_layout(draws, entry.min_world, settings_[index], config, fails(entry));
    plain.layout = config.layout;
    const std::optional<MutantConfig> mutant = draw_mutant(draws, entry, config);
    if (!mutant) {
      cannot_act(entry, fmt::format("it cannot show within {} steps", config.steps));
      return;
    }
    config.mutant = *mutant;
    if (fails(entry)) {
      // A rank can only die alone where it is a process.
      if (!has(settings_[index], "ranks")) config.backend = Backend::gloo;
      if (entry.causes.find("hung") != std::string_view::npos) config.timeout_s = kHungTimeoutS;
    }
    finish(fmt::format("{}{} #{}", entry.name, beside ? " exact" : "", seed), std::move(config));
    if (std::string reason = refused(std::move(plain)); !reason.empty()) {
      cannot_act(entry, fmt::format("with {}, {}", entry.settings, reason));
    }
  }

  /// Settings of both; false if they want different values of one key.
  bool merge_settings(std::size_t a, std::size_t b, RunConfig& config) const {
    lockstep::apply(settings_[a], config);
    lockstep::apply(settings_[b], config);
    return std::all_of(settings_[a].begin(), settings_[a].end(), [&](const Setting& setting) {
      return equal(setting.field->of(config), setting.value);
    });
  }

  bool add_pair(int64_t number) {
    constexpr int kMostAttempts = 1000;
    if (entries_.size() < 2) return false;
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      const Draws draws(detection_.draw_seed, fmt::format("pair {}", number), attempt);
      const auto last = static_cast<int64_t>(entries_.size()) - 1;
      const auto a = static_cast<std::size_t>(draws.between("a", 0, last));
      const auto b = static_cast<std::size_t>(draws.between("b", 0, last));
      if (a == b || fails(*entries_[a]) || fails(*entries_[b])) continue;
      const std::set<std::size_t> both{a, b};
      if (paired_.contains(both) && attempt < kMostAttempts / 2) continue;
      const auto& seeds = source_.matrix.seeds;
      RunConfig config = faultless(draws.pick("seed", seeds), draws.between("variant", 0, kVariants - 1));
      RunConfig plain = config;
      if (!merge_settings(a, b, config)) continue;
      std::vector<Setting> settings = settings_[a];
      settings.insert(settings.end(), settings_[b].begin(), settings_[b].end());
      const int min_world = std::max(entries_[a]->min_world, entries_[b]->min_world);
      config.layout = draw_layout(draws, min_world, settings, config, false);
      const int64_t trial = number * kMostAttempts + attempt;
      auto one = draw_mutant(Draws(detection_.draw_seed, "first of pair", trial), *entries_[a], config);
      auto two = draw_mutant(Draws(detection_.draw_seed, "second of pair", trial), *entries_[b], config);
      if (!one || !two || one->step == two->step) continue;
      const int64_t epoch = steps_per_epoch(config);
      if (shown_at(*entries_[a], one->step, epoch) == shown_at(*entries_[b], two->step, epoch)) continue;
      if (two->step < one->step) std::swap(one, two);
      config.mutant = *one;
      config.second_mutant = *two;
      paired_.insert(both);
      finish(fmt::format("{} + {} #{}", one->name, two->name, number), std::move(config));
      plain.layout = config.layout;
      if (!refused(std::move(plain)).empty()) {
        cells_.pop_back();
        continue;
      }
      return true;
    }
    problems_.add(place(), "no two mutants can be combined: name more of them, or set detection.pairs to 0");
    return false;
  }

  void add_clean(int64_t number) {
    // One reference for a group, which has each layout once.
    const Draws group(detection_.draw_seed, "clean group", number / kCleanGroup);
    const Draws draws(detection_.draw_seed, "clean", number);
    constexpr int64_t kSeeds = 1'000'000;
    RunConfig config =
        faultless(group.between("seed", 0, kSeeds), group.between("variant", 0, kVariants - 1));
    config.steps = group.between("steps", 1, detection_.steps);
    const RunField* dropout = find_field(spec_of(config), "dropout");
    if (dropout != nullptr && !group.coin("dropout")) store(dropout->of(config), 0.0);
    config.layout = kLayouts[static_cast<std::size_t>(number) % kLayouts.size()];
    config.trace = draws.pick("trace", kTraceLevels);
    config.bucket_cap_bytes = draws.coin("buckets") ? 0 : 2048;
    config.gradient_as_bucket_view = draws.coin("view");
    finish(fmt::format("clean #{}", number), std::move(config));
  }

  const MatrixSource& source_;
  Problems& problems_;
  DetectionConfig& detection_;
  std::vector<const MutantEntry*> entries_;
  std::vector<std::vector<Setting>> settings_;  // by entry
  std::vector<ModelParameter> parameters_;
  std::set<std::set<std::size_t>> paired_;
  std::vector<Cell> cells_;
};

}  // namespace

std::string left_out_words(const std::vector<LeftOutMutant>& left_out) {
  std::string text;
  for (const LeftOutMutant& each : left_out) {
    text += fmt::format("{}{} ({})", text.empty() ? "left out because they cannot act here: " : "; ", each.mutant, each.reason);
  }
  return text;
}

void read_mutants(const Entry& entry, DetectionConfig& detection, Problems& problems) {
  detection.mutants.clear();
  if (entry.value.is_scalar() && entry.value.text == "all") return;
  if (!entry.value.is_sequence() || entry.value.items.empty()) {
    problems.add(entry.place, "detection.mutants must be all, or a list of mutants");
    return;
  }
  std::vector<std::string_view> names;
  for (const MutantEntry& mutant : mutant_entries()) names.push_back(mutant.name);
  for (const YamlNode& item : entry.value.items) {
    if (!item.is_scalar() || std::find(names.begin(), names.end(), item.text) == names.end()) {
      problems.add(item.place, "unknown mutant " + in_quotes(item.text), nearest(item.text, names));
    } else if (std::find(detection.mutants.begin(), detection.mutants.end(), item.text) !=
               detection.mutants.end()) {
      problems.add(item.place, fmt::format("mutant {} is given twice", item.text));
    } else {
      detection.mutants.push_back(item.text);
    }
  }
}

std::vector<Cell> detection_cells(MatrixSource& source, Problems& problems) {
  return Expansion(source, problems).run();
}

}  // namespace lockstep
