#include "harness/results/metric_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace lockstep {
namespace {

/// A metric's name taken apart: "cross_entropy_24_fitted" is family cross_entropy, way 24, fitted.
struct MetricParts {
  std::string family;  ///< in words, without the way
  std::string way;     ///< "24", or empty
};

MetricParts parts_of(std::string_view metric) {
  if (metric == kTrainLossOverLogN) return {"training loss / log N", ""};
  if (metric == kTrainLoss) return {"training loss", ""};
  if (metric.starts_with(kAreaPrefix)) {
    MetricParts parts = parts_of(metric.substr(kAreaPrefix.size()));
    if (!parts.way.empty()) return {fmt::format("area under the {} curve", parts.family), parts.way};
  }
  for (const auto& [prefix, words] : {std::pair<std::string_view, std::string_view>{"accuracy_", "accuracy"},
                                      {"cross_entropy_", "cross-entropy"}}) {
    if (!metric.starts_with(prefix)) continue;
    const std::string_view rest = metric.substr(prefix.size());
    const std::string_view way = rest.substr(0, rest.find_first_not_of("0123456789"));
    const std::string_view suffix = rest.substr(way.size());
    if (way.empty() || !(suffix.empty() || suffix == "_fitted")) break;
    if (words == "accuracy") return {suffix.empty() ? "accuracy" : "fitted accuracy", std::string(way)};
    return {suffix.empty() ? "raw cross-entropy" : "temperature-fitted cross-entropy", std::string(way)};
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
  const MetricParts parts = parts_of(metric);
  return !parts.way.empty() && !metric.starts_with(kAreaPrefix) && !metric.ends_with("_fitted");
}

std::optional<bool> higher_is_better(std::string_view metric) {
  if (metric.starts_with(kAreaPrefix)) return higher_is_better(metric.substr(kAreaPrefix.size()));
  if (metric.starts_with("accuracy")) return true;
  for (std::string_view prefix : {"cross_entropy", "loss", "train_loss"}) {
    if (metric.starts_with(prefix)) return false;
  }
  return std::nullopt;
}

std::string metric_label(std::string_view metric) {
  const MetricParts parts = parts_of(metric);
  if (parts.way.empty()) return parts.family;
  if (parts.family == "accuracy") return parts.way + "-way accuracy";
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
