#include "harness/verdict/results/results.h"

#include <array>

namespace lockstep {
namespace {

constexpr auto kClaimStateNames = std::to_array<std::string_view>(
    {"holds", "does not hold", "undecided", "not testable here", "waiting"});
static_assert(kClaimStateNames.size() == static_cast<std::size_t>(ClaimState::waiting) + 1);

constexpr auto kInterimEndNames = std::to_array<std::string_view>({"decided", "most seeds", "budget"});
static_assert(kInterimEndNames.size() == static_cast<std::size_t>(InterimEnd::budget) + 1);

}  // namespace

std::span<const std::string_view> claim_state_names() { return kClaimStateNames; }
std::span<const std::string_view> interim_end_names() { return kInterimEndNames; }
const char* name_of(InterimEnd end) { return kInterimEndNames[static_cast<std::size_t>(end)].data(); }
const char* name_of(ClaimState state) { return kClaimStateNames[static_cast<std::size_t>(state)].data(); }

}  // namespace lockstep
