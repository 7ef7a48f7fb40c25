#include "harness/config/learning_keys.h"

#include <algorithm>
#include <array>

namespace lockstep {

bool decides_learning(std::string_view key) {
  static constexpr auto kHowItRuns = std::to_array<std::string_view>(
      {"seed", "trace", "snapshot_steps", "eval_every", "timeout_s", "control_guard", "ranks", "backend", "process_start", "bucket_cap_bytes",
       "gradient_as_bucket_view", "find_unused_parameters", "data.cache", "data.prefetch"});
  return std::ranges::find(kHowItRuns, key) == kHowItRuns.end() && !key.starts_with("checkpoint.") &&
         (!key.starts_with("watch.") || key == "watch.nan_guard");
}

std::string learning_text(std::vector<std::pair<std::string, std::string>> rows) {
  std::erase_if(rows, [](const auto& row) { return !decides_learning(row.first); });
  std::ranges::sort(rows);
  std::string text;
  for (const auto& [key, value] : rows) text += key + "=" + value + "\n";
  return text;
}

}  // namespace lockstep
