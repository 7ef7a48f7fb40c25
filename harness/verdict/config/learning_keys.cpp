#include "harness/verdict/config/learning_keys.h"

#include <algorithm>
#include <array>

#include "harness/verdict/config/canonical.h"

namespace lockstep {

bool decides_learning(std::string_view key) {
  static constexpr auto kHowItRuns = std::to_array<std::string_view>(
      {"seed", "trace", "snapshot_steps", "eval_every", "timeout_s", "control_guard", "ranks", "backend", "process_start", "bucket_cap_bytes",
       "gradient_as_bucket_view", "find_unused_parameters", "update", "data.cache", "data.prefetch"});
  return std::ranges::find(kHowItRuns, key) == kHowItRuns.end() && !key.starts_with("checkpoint.") &&
         (!key.starts_with("watch.") || key == "watch.nan_guard");
}

bool decides_bits(std::string_view key) {
  static constexpr auto kNever = std::to_array<std::string_view>(
      {"seed", "stop_after", "trace", "snapshot_steps", "eval_every", "timeout_s", "process_start", "data.cache", "data.prefetch"});
  static constexpr auto kNeverBelow =
      std::to_array<std::string_view>({"checkpoint.", "watch.", "forced.", "mutant.", "second_mutant.", "resume_"});
  return std::ranges::find(kNever, key) == kNever.end() && (key == "watch.nan_guard" || std::ranges::none_of(kNeverBelow, [&](std::string_view group) {
                                                              return key.starts_with(group);
                                                            }));
}

bool promise_equal_bits(const RunConfig& a, const RunConfig& b) {
  if (a.trainer != b.trainer) return false;
  const auto rows_of = [](const RunConfig& config) {
    auto rows = config_fields(config);
    std::erase_if(rows, [](const auto& row) { return !decides_bits(row.first); });
    return rows;
  };
  // Of what GPUs carry the order of adding is not known.
  return a.transport == Transport::gloo && rows_of(a) == rows_of(b);
}

std::string learning_text(std::vector<std::pair<std::string, std::string>> rows) {
  std::erase_if(rows, [](const auto& row) { return !decides_learning(row.first); });
  std::ranges::sort(rows);
  std::string text;
  for (const auto& [key, value] : rows) text += key + "=" + value + "\n";
  return text;
}

}  // namespace lockstep
