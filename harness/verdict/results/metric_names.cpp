#include "harness/verdict/results/metric_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/base/text.h"
#include "harness/verdict/config/metrics.h"

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

}  // namespace lockstep
