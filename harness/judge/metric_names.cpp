#include "harness/judge/metric_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace lockstep {
namespace {

constexpr std::size_t kMostDigits = 6;

MetricName way_of(MetricKind kind, std::string_view rest) {
  const std::string_view way = rest.substr(0, rest.find_first_not_of("0123456789"));
  const std::string_view suffix = rest.substr(way.size());
  if (way.empty() || way.size() > kMostDigits || !(suffix.empty() || suffix == "_fitted")) return {};
  return {kind, std::string(way), !suffix.empty(), false};
}

/// Its family in words, without the way.
std::string family_of(std::string_view metric, const MetricName& name) {
  std::string words;
  switch (name.kind) {
    case MetricKind::accuracy:
      words = name.fitted ? "fitted accuracy" : "accuracy";
      break;
    case MetricKind::cross_entropy:
      words = name.fitted ? "temperature-fitted cross-entropy" : "raw cross-entropy";
      break;
    case MetricKind::loss:
      return "training loss";
    case MetricKind::loss_over_log_n:
      return "training loss / log N";
    case MetricKind::other:
      return std::string(metric);
  }
  return name.area ? fmt::format("area under the {} curve", words) : words;
}

std::string family_of(std::string_view metric) { return family_of(metric, metric_name(metric)); }

}  // namespace

std::string join_words(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

MetricName metric_name(std::string_view metric) {
  if (metric.starts_with(kAreaPrefix)) {
    MetricName name = metric_name(metric.substr(kAreaPrefix.size()));
    const bool has_curve = !name.way.empty() && !name.fitted && !name.area;
    name.area = true;
    return has_curve ? name : MetricName{};
  }
  const auto rest_after = [metric](std::string_view prefix) { return metric.substr(prefix.size()); };
  if (metric.starts_with("accuracy_")) return way_of(MetricKind::accuracy, rest_after("accuracy_"));
  if (metric.starts_with("cross_entropy_"))
    return way_of(MetricKind::cross_entropy, rest_after("cross_entropy_"));
  const std::string_view curve = metric.starts_with("train_") ? rest_after("train_") : metric;
  if (curve == "loss") return {MetricKind::loss, "", false, false};
  if (curve == "loss_over_log_n") return {MetricKind::loss_over_log_n, "", false, false};
  return {};
}

bool has_area(std::string_view metric) {
  const MetricName name = metric_name(metric);
  return !name.way.empty() && !name.area && !name.fitted;
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
  const MetricName name = metric_name(metric);
  const std::string family = family_of(metric, name);
  if (name.way.empty()) return family;
  if (name.kind == MetricKind::accuracy && !name.fitted && !name.area) return name.way + "-way accuracy";
  return fmt::format("{} ({}-way)", family, name.way);
}

std::string metric_list(const std::vector<std::string>& metrics, const std::vector<std::string>& all) {
  std::vector<std::string> families;
  std::map<std::string, std::vector<std::string>> ways;
  for (const std::string& metric : metrics) {
    const std::string family = family_of(metric);
    if (std::ranges::find(families, family) == families.end()) families.push_back(family);
    ways[family].push_back(metric_name(metric).way);
  }
  std::vector<std::string> phrases;
  for (const std::string& family : families) {
    const auto whole =
        std::ranges::count_if(all, [&](const auto& metric) { return family_of(metric) == family; });
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
