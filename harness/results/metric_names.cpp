#include "harness/results/metric_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/config/metrics.h"

namespace lockstep {
namespace {

/// What a metric is called: "cross_entropy_24_fitted" is of family "temperature-fitted cross-entropy", among 24.
struct MetricParts {
  std::string family;  ///< in words, without the way
  std::string way;     ///< "24", or empty
};

MetricParts parts_of(std::string_view metric) {
  if (const MetricSpec* spec = find_metric(metric)) {
    return {std::string(spec->family.empty() ? spec->name : spec->family), std::string(spec->way)};
  }
  if (metric.starts_with(kTrainPrefix)) {
    const MetricSpec* spec = find_metric(metric.substr(kTrainPrefix.size()));
    if (spec != nullptr && !spec->train_words.empty()) return {std::string(spec->train_words), ""};
  }
  if (metric.starts_with(kAreaPrefix)) {
    MetricParts parts = parts_of(metric.substr(kAreaPrefix.size()));
    if (!parts.way.empty()) return {fmt::format("area under the {} curve", parts.family), parts.way};
  }
  return {std::string(metric), ""};
}

}  // namespace

std::string join_words(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
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
  const MetricParts parts = parts_of(metric);
  if (parts.way.empty()) return parts.family;
  // One word has its number in front, several behind.
  if (parts.family.find(' ') == std::string::npos) return fmt::format("{}-way {}", parts.way, parts.family);
  return fmt::format("{} ({}-way)", parts.family, parts.way);
}

std::string metric_list(const std::vector<std::string>& metrics, const std::vector<std::string>& all) {
  std::vector<std::string> families;
  std::map<std::string, std::vector<std::string>> ways;
  for (const std::string& metric : metrics) {
    const MetricParts parts = parts_of(metric);
    if (std::ranges::find(families, parts.family) == families.end()) families.push_back(parts.family);
    ways[parts.family].push_back(parts.way);
  }
  std::vector<std::string> phrases;
  for (const std::string& family : families) {
    const auto whole =
        std::ranges::count_if(all, [&](const auto& metric) { return parts_of(metric).family == family; });
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
