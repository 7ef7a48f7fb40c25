#include "harness/verdict/results/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "harness/verdict/results/metric_names.h"

namespace lockstep {

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

}  // namespace lockstep
