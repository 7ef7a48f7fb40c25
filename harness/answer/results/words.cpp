#include "harness/answer/results/words.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "harness/answer/results/results_codec.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep {
namespace {

/// "24", or empty.
std::string way_of(std::string_view metric) {
  const MetricSpec* spec = metric_name(metric).spec;
  return spec == nullptr ? "" : std::string(spec->way);
}

}  // namespace

MetricName metric_name(std::string_view metric) {
  if (const MetricSpec* spec = find_metric(metric)) return {spec, false, !spec->train_words.empty()};
  if (metric.starts_with(kTrainPrefix)) {
    const MetricSpec* spec = find_metric(metric.substr(kTrainPrefix.size()));
    if (spec != nullptr && !spec->train_words.empty()) return {spec, false, true};
  }
  if (metric.starts_with(kAreaPrefix)) {
    const MetricSpec* spec = find_metric(metric.substr(kAreaPrefix.size()));
    if (spec != nullptr && spec->has_area) return {spec, true, false};
  }
  return {};
}

/// Its family in words, without the way: "raw cross-entropy", "area under the accuracy curve".
static std::string metric_family(std::string_view metric) {
  const MetricName name = metric_name(metric);
  if (name.spec == nullptr) return std::string(metric);
  if (name.training) return std::string(name.spec->train_words);
  std::string words(name.spec->family.empty() ? name.spec->name : name.spec->family);
  if (!name.spec->qualifier.empty()) words = fmt::format("{} {}", name.spec->qualifier, words);
  return name.area ? fmt::format("area under the {} curve", words) : words;
}

bool has_area(std::string_view metric) {
  const MetricSpec* spec = find_metric(metric);
  return spec != nullptr && spec->has_area;
}

std::optional<bool> higher_is_better(std::string_view metric) {
  if (const MetricSpec* spec = find_metric(metric)) return spec->higher_is_better;
  for (const std::string_view prefix : {kAreaPrefix, kTrainPrefix}) {
    if (metric.starts_with(prefix)) return higher_is_better(metric.substr(prefix.size()));
  }
  return std::nullopt;
}

std::string metric_label(std::string_view metric) {
  const std::string family = metric_family(metric), way = way_of(metric);
  if (way.empty()) return family;
  // One word has its number in front, several behind.
  if (family.find(' ') == std::string::npos) return fmt::format("{}-way {}", way, family);
  return fmt::format("{} ({}-way)", family, way);
}

std::string metric_list(const std::vector<std::string>& metrics, const std::vector<std::string>& all) {
  std::vector<std::string> families;
  std::map<std::string, std::vector<std::string>> ways;
  for (const std::string& metric : metrics) {
    const std::string family = metric_family(metric);
    if (std::ranges::find(families, family) == families.end()) families.push_back(family);
    ways[family].push_back(way_of(metric));
  }
  std::vector<std::string> phrases;
  for (const std::string& family : families) {
    const auto whole =
        std::ranges::count_if(all, [&](const auto& metric) { return metric_family(metric) == family; });
    std::vector<std::string> sizes = ways[family];
    if (static_cast<std::ptrdiff_t>(sizes.size()) >= whole || sizes.front().empty()) {
      phrases.push_back("its " + family);
      continue;
    }
    std::ranges::sort(sizes, {}, [](const std::string& way) { return std::pair(way.size(), way); });
    for (std::string& size : sizes) size += "-way";
    phrases.push_back(fmt::format("its {} {}", join_words(sizes), family));
  }
  return join_words(phrases);
}

std::string drift_sentence(const std::vector<CurveBand>& drift) {
  std::string parts;
  int64_t last = 0;
  for (const CurveBand& band : drift) {
    if (band.steps.empty()) continue;
    const double most = *std::ranges::max_element(band.high);
    last = std::max(last, band.steps.back());
    if (!parts.empty()) parts += ", ";
    const std::string apart = most == 0 ? "0" : fmt::format("at most {:.1e}", most);
    if (band.metric == kParameterDrift)
      parts += fmt::format("parameters {} of their norm", apart);
    else if (band.metric == kIdleParameterDrift)
      parts += fmt::format("{} {}", kIdleParameterDrift, apart);
    else
      parts += fmt::format("{} {}", metric_label(band.metric), apart);
  }
  if (parts.empty()) return {};
  return fmt::format("Differences by rounding alone up to step {}: {}.", last, parts);
}

namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;

/// What cells and references are run with.
struct Varied {
  std::set<int> batches;
  std::set<std::string> rules;

  void add(const std::optional<Layout>& layout, const Rows& config) {
    if (layout) batches.insert(layout->global_batch());
    const auto rule = std::ranges::find(config, "lr_rule", &Rows::value_type::first);
    const bool alone = layout && layout->world_size == 1;
    rules.insert(rule == config.end() || alone ? "none" : rule->second);
  }
};

}  // namespace

bool varies_batch_or_rate_rule(const Results& results) {
  Varied varied;
  for (const CellResult& cell : results.cells) {
    if (cell.power_control || cell.noise) continue;
    varied.add(cell.layout, cell.config);
    const auto reference = std::ranges::find(results.references, cell.reference, &ReferenceResult::name);
    if (reference != results.references.end()) varied.add(reference->layout, reference->config);
  }
  // What was judged says it as well, where results hold no layouts.
  for (const Growth& growth : results.growth) {
    varied.batches.insert({growth.from_batch, growth.to_batch});
    // "sqrt beta2=0.99": a rule, and what of Adam's settings is another.
    for (const Growth::Rule& rule : growth.rules) varied.rules.insert(rule.rule.substr(0, rule.rule.find(' ')));
  }
  return varied.batches.size() > 1 || varied.rules.size() > 1;
}

namespace {

using namespace results_format;

/// What a document must have before its content is looked at: a version that we know, its own checksum.
void check_document(const Json& document) {
  if (!document.is_object()) refuse("an object", document);
  const auto version = document.find("schema_version");
  if (version == document.end()) throw Unreadable("the key \"schema_version\" is missing");
  if (*version != kResultsSchemaVersion) {
    throw Unreadable(fmt::format("schema version {} is not known to this build, which reads version {}",
                                 version->dump(), kResultsSchemaVersion));
  }
  if (const std::string problem = seal_problem(document); !problem.empty())
    throw Unreadable(problem + "; `lockstep run` with its config writes it anew");
}

}  // namespace

std::string results_to_json(const Results& results) {
  Json document = usual<Results>().write(results);
  seal(document);
  // Ranks' last lines and messages may hold any bytes; what is not UTF-8 is replaced rather than refused.
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Results results_from_json(const std::string& text, const std::string& file_name) {
  try {
    JsonProblem problem;
    const Json document = parse_ordered_json(text, &problem);
    if (!problem.message.empty()) throw Unreadable(problem.text());
    check_document(document);
    Results results;
    usual<Results>().read(document, results);
    return results;
  } catch (const Unreadable& error) {
    throw std::runtime_error(file_name + ": " + error.text());
  }
}

std::string results_schema() {
  Definitions definitions;
  Json document = schema_of(described<Results>(), definitions);
  document["required"].push_back("checksum");
  document["properties"]["checksum"] = {
      {"type", "string"},
      {"pattern", "^[0-9a-f]{16}$"},
      {"description",
       "XXH3 of all other keys and values, whatever their order and layout; `lockstep` refuses a file that "
       "it does not fit."}};
  document["definitions"] = definitions.all();
  Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "results.json of lockstep"}};
  schema.update(document);
  return dense_json(schema);
}

}  // namespace lockstep
