#include "scenarios/energy/pairs.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
int64_t pairs_of(int64_t steps, const PairConfig& config) {
  const int64_t spare = steps - config.context_steps - config.action_steps;
  return spare < 0 ? 0 : spare / config.stride + 1;
}

std::optional<SampleCounts> counted_pairs(const PairConfig& config) {
  if (config.source == DataSource::ts_files) return std::nullopt;
  const bool synthetic = config.source == DataSource::synthetic;
  const int64_t series = synthetic ? config.series : kBasicMotionsSeries;
  const int64_t of_each = pairs_of(synthetic ? config.series_steps : kBasicMotionsSteps, config);
  if (of_each == 0 || config.holdout_series >= series) return std::nullopt;
  return SampleCounts{(series - config.holdout_series) * of_each, config.holdout_series * of_each,
                    series * of_each};
}

std::string how_to_get_pairs(const PairConfig& config, std::string_view part) {
  std::string text = fmt::format(
      "more come with a smaller data.context_steps ({}), data.action_steps ({}) or data.stride ({})",
      config.context_steps, config.action_steps, config.stride);
  if (part == "training")
    text += fmt::format(", with a smaller data.holdout_series ({})", config.holdout_series);
  if (part == "held-out")
    text += fmt::format(", with a larger data.holdout_series ({})", config.holdout_series);
  return text + (config.source == DataSource::synthetic
                     ? fmt::format(", or with more data.series ({}) of more data.series_steps ({})",
                                   config.series, config.series_steps)
                     : ", or from files with more or longer series");
}

}  // namespace lockstep
