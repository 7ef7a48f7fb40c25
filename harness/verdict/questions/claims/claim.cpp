#include "harness/verdict/questions/claims/claim.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>

#include "harness/base/nearest.h"
#include "harness/verdict/config/metrics.h"
#include "harness/verdict/config/settings.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/matrix.h"

namespace lockstep {
namespace {

using Kind = Condition::Kind;
using Names = std::vector<std::string_view>;

// What a kind of condition may say besides its first key; a key in `needs` must be there.
struct KindSpec {
  std::string_view key;
  Kind kind;
  Names needs, may;
  Names words;  ///< that `is` (or `gives`) may hold
};

const std::array<KindSpec, 13>& kinds() {
  static const std::array<KindSpec, 13> specs{{
      {"outcome",
       Kind::outcome,
       {"is"},
       {"metric", "against", "margin"},
       {"better", "worse", "higher", "lower", "equivalent", "different"}},
      {"value", Kind::value, {"of", "within"}, {}, {}},
      {"ratio", Kind::ratio, {"of", "within"}, {"to"}, {}},
      {"gradient", Kind::gradient, {"group", "within"}, {"of"}, {}},
      {"mechanism",
       Kind::mechanism,
       {"is"},
       {},
       {"identical", "within_envelope", "divergent", "inconclusive"}},
      {"rule", Kind::rule, {"at", "gives"}, {}, {"local", "global", "layer"}},
      {"certified", Kind::certified, {"steps"}, {}, {}},
      {"samples", Kind::samples, {"are"}, {}, {"as_reference", "each_once", "equal_counts", "reshuffled"}},
      {"draws", Kind::draws, {"are"}, {}, {"apart", "apart_over_seeds"}},
      {"first", Kind::first, {}, {"step", "rank", "where", "cause"}, {}},
      {"suite", Kind::suite, {"is"}, {"failure", "place", "outcome"}, {"clean", "faulty", "found"}},
      {"written", Kind::written, {"are"}, {"metric"}, {"logs", "results", "steps_per_s", "memory", "communication_time"}},
      {"timing", Kind::timing, {"at", "within"}, {}, {}},
  }};
  return specs;
}

constexpr std::array<std::string_view, 5> kStates{"holds", "does not hold", "undecided", "not testable here",
                                                  "waiting"};
constexpr std::array<std::string_view, 3> kTimings{"speed_up", "efficiency", "communication_share"};
constexpr std::array<std::string_view, 3> kSignatures{"ratio", "cosine", "residual"};
constexpr std::array<std::string_view, 2> kRules{"adaptive", "adaptive_as_written"};

class ClaimReader {
 public:
  explicit ClaimReader(Problems& problems) : problems_(problems) {}

  std::vector<Claim> read(const YamlNode& node) {
    std::vector<Claim> claims;
    if (!node.is_sequence()) {
      problems_.add(node.place, fmt::format("claims must be a list of maps, not {}", got(node)));
      return claims;
    }
    for (const YamlNode& item : node.items) {
      if (item.is_map()) {
        claims.push_back(claim(item));
      } else {
        problems_.add(item.place, fmt::format("a claim must be a map, not {}", got(item)));
      }
    }
    return claims;
  }

 private:
  static std::string got(const YamlNode& node) {
    return node.is_scalar() ? in_quotes(node.text) : name_of(node.kind);
  }

  std::string text(const YamlNode& node, const YamlNode& key) {
    if (node.is_scalar() && !node.text.empty()) return node.text;
    problems_.add(node.place.line > 0 ? node.place : key.place,
                  fmt::format("{} must be a text, not {}", key.text, got(node)));
    return "";
  }

  std::vector<std::string> texts(const YamlNode& node, const YamlNode& key) {
    std::vector<std::string> out;
    if (!node.is_sequence()) return {text(node, key)};
    for (const YamlNode& item : node.items) out.push_back(text(item, key));
    if (out.empty()) problems_.add(node.place, fmt::format("{} is empty", key.text));
    return out;
  }

  template <class Range>
  void one_of(const std::string& word, const Place& place, const YamlNode& key, const Range& allowed) {
    if (word.empty() || std::find(allowed.begin(), allowed.end(), word) != allowed.end()) return;
    const Names names(allowed.begin(), allowed.end());
    problems_.add(place,
                  fmt::format("{} must be {}, not {}", key.text, fmt::join(names, ", "), in_quotes(word)),
                  nearest(word, names));
  }

  Claim claim(const YamlNode& map) {
    Claim claim;
    claim.place = map.place;
    bool has_conditions = false;
    for (std::size_t i = 0; i < map.keys.size(); ++i) {
      const YamlNode &key = map.keys[i], &value = map.items[i];
      if (key.text == "id") {
        claim.id = text(value, key);
        if (!claim.id.empty() && !ids_.insert(claim.id).second) {
          problems_.add(key.place, fmt::format("claim {} is given twice", in_quotes(claim.id)));
        }
      } else if (key.text == "told") {
        claim.told = text(value, key);
      } else if (key.text == "conditions") {
        has_conditions = true;
        read_conditions(value, key, claim);
      } else if (key.text == "shows") {
        claim.shows = texts(value, key);
      } else if (key.text == "not_testable") {
        claim.not_testable = text(value, key);
      } else if (key.text == "waiting_for") {
        claim.waiting_for = text(value, key);
      } else if (key.text == "expect") {
        claim.expected = text(value, key);
        one_of(claim.expected, value.place, key, kStates);
      } else {
        report_unknown_key(key.text, key.place,
                           {"id", "told", "conditions", "shows", "not_testable", "waiting_for", "expect"},
                           problems_);
      }
    }
    if (claim.id.empty()) problems_.add(map.place, "a claim needs an id");
    if (claim.told.empty()) problems_.add(map.place, "a claim needs told: the claim as people state it");
    const int reasons =
        (has_conditions ? 1 : 0) + (claim.not_testable.empty() ? 0 : 1) + (claim.waiting_for.empty() ? 0 : 1);
    if (reasons != 1) {
      problems_.add(map.place,
                    "a claim needs conditions, or a reason why it is not_testable here, or what it is "
                    "waiting_for");
    }
    return claim;
  }

  void read_conditions(const YamlNode& node, const YamlNode& key, Claim& claim) {
    if (!node.is_sequence() || node.items.empty()) {
      problems_.add(node.place.line > 0 ? node.place : key.place, "conditions must be a list of maps");
      return;
    }
    for (const YamlNode& item : node.items) {
      if (item.is_map() && !item.keys.empty()) {
        claim.conditions.push_back(condition(item));
      } else {
        problems_.add(item.place, fmt::format("a condition must be a map, not {}", got(item)));
      }
    }
  }

  Condition condition(const YamlNode& map) {
    Condition out;
    out.place = map.place;
    const YamlNode& head = map.keys.front();
    const auto& specs = kinds();
    const std::string_view word = head.text == "laboratory" ? "suite" : std::string_view(head.text);  // its name until 0.1
    const auto spec = std::ranges::find(specs, word, &KindSpec::key);
    if (spec == specs.end()) {
      Names names;
      for (const KindSpec& each : specs) names.push_back(each.key);
      problems_.add(
          head.place,
          fmt::format("a condition begins with {}, not {}", fmt::join(names, ", "), in_quotes(head.text)),
          nearest(head.text, names));
      return out;
    }
    out.kind = spec->kind;
    const std::string first = text(map.items.front(), head);
    const bool of_metric = out.kind == Kind::value || out.kind == Kind::ratio || out.kind == Kind::rule ||
                           out.kind == Kind::timing;
    (of_metric ? out.metric : out.cell) = first;
    if (out.kind == Kind::rule) one_of(first, map.items.front().place, head, kRules);
    if (out.kind == Kind::timing) one_of(first, map.items.front().place, head, kTimings);
    std::set<std::string_view> given;
    for (std::size_t i = 1; i < map.keys.size(); ++i) {
      const YamlNode& key = map.keys[i];
      const bool known = std::find(spec->needs.begin(), spec->needs.end(), key.text) != spec->needs.end() ||
                         std::find(spec->may.begin(), spec->may.end(), key.text) != spec->may.end();
      if (known) {
        given.insert(key.text);
        read_key(*spec, key, map.items[i], out);
      } else {
        Names names = spec->needs;
        names.insert(names.end(), spec->may.begin(), spec->may.end());
        report_unknown_key(key.text, key.place, names, problems_);
      }
    }
    for (const std::string_view need : spec->needs) {
      if (!given.contains(need)) problems_.add(map.place, fmt::format("{} needs {}", spec->key, need));
    }
    if (out.kind == Kind::gradient && out.metric.empty()) out.metric = "ratio";
    return out;
  }

  void read_key(const KindSpec& spec, const YamlNode& key, const YamlNode& value, Condition& out) {
    if (key.text == "step" || key.text == "steps" || key.text == "rank") {
      constexpr int64_t kMost = 1'000'000'000;
      int64_t number = 0;
      if (!value.is_scalar() || value.quoted || !parse_integer(value.text, number)) {
        problems_.add(value.place, fmt::format("{} must be a whole number, not {}", key.text, got(value)),
                      value.is_scalar() ? plain_integer(value.text) : "");
      } else if (number < -1 || number > kMost) {
        problems_.add(value.place, fmt::format("{} must be in [-1, {}], not {}", key.text, kMost, number));
        number = 0;
      }
      (key.text == "rank" ? void(out.rank = static_cast<int>(number)) : void(out.step = number));
    } else if (key.text == "where" || key.text == "cause") {
      (key.text == "where" ? out.where : out.cause) = text(value, key);
    } else if (key.text == "failure" || key.text == "place" || key.text == "outcome") {
      (key.text == "failure" ? out.failure : key.text == "place" ? out.place_words : out.outcome) = text(value, key);
    } else if (key.text == "is" || key.text == "gives" || key.text == "are") {
      out.is = texts(value, key);
      for (const std::string& word : out.is) one_of(word, value.place, key, spec.words);
    } else if (key.text == "within") {
      read_within(value, key, out);
    } else if (key.text == "margin") {
      if (!parse_double(value.text, out.margin) || !(out.margin > 0)) {
        problems_.add(value.place, fmt::format("margin must be a number greater than 0, not {}", got(value)));
      }
    } else if (key.text == "of" && out.kind == Kind::gradient) {
      out.metric = text(value, key);
      one_of(out.metric, value.place, key, kSignatures);
    } else if (key.text == "at") {
      out.cell = text(value, key);
      read_layout(value, out.cell);
    } else {
      (key.text == "of"       ? out.cell
       : key.text == "metric" ? out.metric
       : key.text == "group"  ? out.group
                              : out.against) = text(value, key);
    }
  }

  void read_layout(const YamlNode& value, const std::string& word) {
    int64_t ranks = 0, rows = 0;
    const std::size_t x = word.find('x');
    if (x != std::string::npos && parse_integer(word.substr(0, x), ranks) &&
        parse_integer(word.substr(x + 1), rows) && ranks > 0 && rows > 0) {
      return;
    }
    problems_.add(value.place, fmt::format("at must be a layout such as 8x3, not {}", got(value)));
  }

  void read_within(const YamlNode& value, const YamlNode& key, Condition& out) {
    const bool pair = value.is_sequence() && value.items.size() == 2;
    if (!pair || !parse_double(value.items[0].text, out.low) ||
        !parse_double(value.items[1].text, out.high)) {
      problems_.add(value.place.line > 0 ? value.place : key.place,
                    "within must be two numbers, [lowest, highest]");
    } else if (out.low > out.high) {
      problems_.add(value.place, fmt::format("within [{}, {}] is empty", out.low, out.high));
    }
  }

  Problems& problems_;
  std::set<std::string> ids_;
};

// Of a layout, which need be no cell, of a suite, or of another matrix.
bool names_no_cell(const Condition& condition) {
  return condition.kind == Kind::rule || condition.kind == Kind::timing || condition.kind == Kind::suite ||
         condition.kind == Kind::written;
}

}  // namespace

std::vector<Claim> read_claims(const YamlNode& node, Problems& problems) {
  return ClaimReader(problems).read(node);
}

std::vector<std::string> cells_of(const Claim& claim) {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Condition& condition : claim.conditions) {
    if (names_no_cell(condition)) continue;
    add(condition.cell);
    add(condition.against);
  }
  for (const std::string& name : claim.shows) add(name);
  return names;
}

// The metrics of a condition: are there such, and do the cells that it names measure them?
void check_metrics(const Condition& condition, const std::vector<Cell>& cells, Problems& problems) {
  const bool measures =
      condition.kind == Kind::outcome || condition.kind == Kind::value || condition.kind == Kind::ratio;
  if (!measures || condition.metric.empty()) return;
  const std::vector<std::string> known = claim_metrics(cells.empty() ? *trainer_specs().front() : spec_of(cells.front().config));
  for (const std::string& metric : parts_of_metric(condition.metric)) {
    if (std::find(known.begin(), known.end(), metric) == known.end()) {
      problems.add(
          condition.place,
          fmt::format("no run measures {}; `lockstep list metrics` names what can be", in_quotes(metric)),
          nearest(metric, Names(known.begin(), known.end())));
      continue;
    }
    for (const Cell& cell : cells) {
      for (const auto& [name, config] :
           {std::pair(&cell.name, &cell.config), {&cell.reference_name, &cell.reference}}) {
        if (*name != condition.cell && *name != condition.against) continue;
        const std::string why = unmeasured(metric, *config, spec_of(*config).counted_samples(*config));
        if (why.empty()) continue;
        problems.add(condition.place, fmt::format("{}: {}", in_quotes(*name), why));
        return;
      }
    }
  }
}

// Groups of parameters: what stands before the first point of their names.
void check_group(const Condition& condition, const std::vector<Cell>& cells, Problems& problems) {
  if (condition.kind != Kind::gradient || condition.group.empty()) return;
  std::vector<std::string> known{"all"};
  for (const Cell& cell : cells) {
    for (const ModelParameter& parameter : spec_of(cell.config).parameters(cell.config, 1)) {
      std::string group = parameter.name.substr(0, parameter.name.find('.'));
      if (std::find(known.begin(), known.end(), group) == known.end()) known.push_back(std::move(group));
    }
  }
  if (std::find(known.begin(), known.end(), condition.group) != known.end()) return;
  problems.add(condition.place,
               fmt::format("the model has no parameters of group {}; it has {}", in_quotes(condition.group),
                           fmt::join(known, ", ")),
               nearest(condition.group, Names(known.begin(), known.end())));
}

void check_claims(const std::vector<Claim>& claims, const std::vector<Cell>& cells, Problems& problems) {
  Names names, references;
  for (const Cell& cell : cells) names.push_back(cell.name);
  for (const Cell& cell : cells) references.push_back(cell.reference_name);
  const auto has = [](const Names& words, const std::string& name) {
    return std::find(words.begin(), words.end(), name) != words.end();
  };
  Names all = names;
  all.insert(all.end(), references.begin(), references.end());
  for (const Claim& claim : claims) {
    for (const Condition& condition : claim.conditions) {
      check_metrics(condition, cells, problems);
      check_group(condition, cells, problems);
      if (names_no_cell(condition)) continue;
      for (const std::string& name : {condition.cell, condition.against}) {
        if (name.empty() || has(all, name)) continue;
        problems.add(condition.place, fmt::format("the matrix has no cell {}", in_quotes(name)),
                     nearest(name, all));
      }
      const bool judged = condition.kind == Kind::gradient || condition.kind == Kind::mechanism ||
                          condition.kind == Kind::certified || condition.kind == Kind::first;
      const bool paired = condition.kind == Kind::outcome || condition.kind == Kind::ratio;
      if (has(names, condition.cell) || !has(references, condition.cell)) continue;
      if (judged || (paired && condition.against.empty())) {
        problems.add(condition.place, fmt::format("{} is a reference: it has no reference of its own",
                                                  in_quotes(condition.cell)));
      }
    }
    for (const std::string& name : claim.shows) {
      if (has(all, name)) continue;
      problems.add(claim.place, fmt::format("the matrix has no cell {}", in_quotes(name)),
                   nearest(name, all));
    }
  }
}

}  // namespace lockstep
