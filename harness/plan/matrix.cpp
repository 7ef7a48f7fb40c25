#include "harness/plan/matrix.h"

#include <array>

namespace lockstep {
namespace {

// In the order of the enumerators.
constexpr auto kVerdictNames = std::to_array<std::string_view>(
    {"identical", "within_envelope", "equivalent", "divergent", "inconclusive", "failed"});
static_assert(kVerdictNames.size() == static_cast<std::size_t>(VerdictKind::failed) + 1);

}  // namespace

std::vector<int64_t> seeds_of(const Matrix& matrix, const Cell& cell) {
  return cell.seeds.empty() ? matrix.seeds : cell.seeds;
}

std::span<const std::string_view> verdict_names() { return kVerdictNames; }

const char* name_of(VerdictKind kind) { return kVerdictNames[static_cast<std::size_t>(kind)].data(); }

}  // namespace lockstep
