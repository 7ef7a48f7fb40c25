#include "harness/plan/mutants.h"

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

constexpr MutantEntry kMutants[] = {
    {.name = "flip_bit",
     .help = "flips bit `bit` of the first element of a local gradient, at `step` alone",
     .min_world = 1,
     .draws = {.rank = true, .tensor = true, .bit = true},
     .phase = "local gradients",
     .where = "$tensor",
     .causes = "bit-flip"},
    {.name = "grad_scale",
     .help = "multiplies local gradients by `factor`, from `step` on",
     .min_world = 1,
     .draws = {.tensor = true, .factor = true},
     .phase = "local gradients",
     .where = "$tensor",
     .causes = "gradient-times-world gradient-over-world unexplained"},
    {.name = "stall",
     .help = "the rank stops making progress at `step`: tests the detection of hangs",
     .min_world = 1,
     .draws = {.rank = true},
     .phase = "failed",
     .causes = "rank-hung"},
    {.name = "throw",
     .help = "the rank throws an exception at `step`",
     .min_world = 1,
     .draws = {.rank = true},
     .phase = "failed",
     .causes = "rank-threw"},
    {.name = "die",
     .help = "the rank kills itself with SIGKILL at `step`",
     .min_world = 1,
     .draws = {.rank = true},
     .phase = "failed",
     .causes = "rank-died"},
};

}  // namespace

std::span<const MutantEntry> mutant_entries() { return kMutants; }

const MutantEntry* find_mutant(std::string_view name) {
  const auto found = std::find_if(std::begin(kMutants), std::end(kMutants),
                                  [&](const MutantEntry& entry) { return entry.name == name; });
  return found != std::end(kMutants) ? found : nullptr;
}

}  // namespace lockstep
