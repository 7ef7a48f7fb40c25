#include "harness/verdict/results/suite_results.h"

#include <array>

namespace lockstep {

std::span<const std::string_view> case_verdict_names() {
  static constexpr auto kNames = std::to_array<std::string_view>({"good", "fault", "undecided", "planted"});
  return kNames;
}

std::string_view name_of(CaseVerdict verdict) { return case_verdict_names()[static_cast<std::size_t>(verdict)]; }

}  // namespace lockstep
