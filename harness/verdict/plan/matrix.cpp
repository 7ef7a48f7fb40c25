#include "harness/verdict/plan/matrix.h"

#include <algorithm>
#include <array>
#include <set>

#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/learning_keys.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {
namespace {

// In the order of the enumerators.
constexpr auto kVerdictNames = std::to_array<std::string_view>(
    {"identical", "within_envelope", "equivalent", "divergent", "inconclusive", "failed"});
static_assert(kVerdictNames.size() == static_cast<std::size_t>(VerdictKind::failed) + 1);
constexpr auto kOutcomeTestNames = std::to_array<std::string_view>({"t", "sign"});
static_assert(kOutcomeTestNames.size() == static_cast<std::size_t>(OutcomeTest::sign) + 1);

}  // namespace

bool trains_command(const Matrix& matrix) { return matrix.of_command && !matrix.cells.empty(); }

std::vector<int64_t> seeds_of(const Matrix& matrix, const Cell& cell) {
  return cell.seeds.empty() ? matrix.seeds : cell.seeds;
}

std::span<const std::string_view> verdict_names() { return kVerdictNames; }

const char* name_of(VerdictKind kind) { return kVerdictNames[static_cast<std::size_t>(kind)].data(); }

std::span<const std::string_view> outcome_test_names() { return kOutcomeTestNames; }

const char* name_of(OutcomeTest test) { return kOutcomeTestNames[static_cast<std::size_t>(test)].data(); }

std::vector<std::string> references_without_control(const Matrix& matrix) {
  std::set<std::string> controlled;
  for (const Cell& cell : matrix.cells) {
    if (cell.power_control) controlled.insert(learning_text(config_fields(cell.reference)));
  }
  std::vector<std::string> names;
  for (const Cell& cell : matrix.cells) {
    if (cell.power_control || cell.noise || cell.anchor) continue;
    if (controlled.contains(learning_text(config_fields(cell.reference)))) continue;
    if (std::ranges::find(names, cell.reference_name) == names.end()) names.push_back(cell.reference_name);
  }
  return names;
}

}  // namespace lockstep
