#include "harness/answer/results/suite_results.h"

#include <fmt/format.h>

#include <array>

namespace lockstep {

std::span<const std::string_view> case_verdict_names() {
  static constexpr auto kNames = std::to_array<std::string_view>({"good", "fault", "undecided", "planted"});
  return kNames;
}

std::string_view name_of(CaseVerdict verdict) { return case_verdict_names()[static_cast<std::size_t>(verdict)]; }

std::string level_words(double level) {
  // Six digits, so that a level of 1 - 2 * 0.05 does not show its rounding.
  return fmt::format("{:.6g} %", 100 * level);
}

}  // namespace lockstep
