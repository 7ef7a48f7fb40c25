#include "harness/verdict/results/drift_words.h"

#include <fmt/format.h>

#include <algorithm>

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

}  // namespace lockstep
