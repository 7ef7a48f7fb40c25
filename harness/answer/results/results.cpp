#include "harness/answer/results/results.h"

#include <array>

namespace lockstep {
namespace {

constexpr auto kInterimEndNames = std::to_array<std::string_view>({"decided", "most seeds", "budget"});
static_assert(kInterimEndNames.size() == static_cast<std::size_t>(InterimEnd::budget) + 1);

}  // namespace

std::span<const std::string_view> interim_end_names() { return kInterimEndNames; }
const char* name_of(InterimEnd end) { return kInterimEndNames[static_cast<std::size_t>(end)].data(); }

}  // namespace lockstep
