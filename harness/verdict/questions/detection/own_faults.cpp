#include "harness/verdict/questions/detection/own_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/verdict/config/field.h"
#include "harness/verdict/config/trainer_spec.h"

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

}  // namespace lockstep
