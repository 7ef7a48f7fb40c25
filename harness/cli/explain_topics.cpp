#include "harness/cli/explain_topics.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr auto kTopics = std::to_array<ExplainTopic>({
    {"meaning", "Float64 twins: whether a difference is meant or rounded.",
     R"(At each forced step both sides load the same parameters, optimizer state, batch and random draws, and compute twice: as
configured, and in float64, with their own code, layout and reduction. The second computation is the run's twin.

  meaning      the two twins against each other, per tensor, with t the sum of |row contributions|, T that of all
               tensors, e how far the reference lies from its own twin, u the epsilon in which it computes:
                   |g_cell - g| <= 1e-12 max(|g|, t) + 1e-14 T + 64 (2^-52 / u) e
               A factor of 1.0000000001 on one tensor is found at the first forced step.
  arithmetic   a run against its own twin, which has the same ranks, rows and tensors:
                   |g_32 - g_64| <= 16 e + n u (8 max(|g|, t) + 4 T),  n = 4 for a single number, else 1
               Narrowed types and flipped bits are found here; in float64 they are not there.

promised       at a forced step, whatever the layout, nothing that means something else passes, and nothing that merely
               rounds otherwise alarms. The verdict says which of the two parted.
not promised   what happens between forced steps; where the cell would have trained to; runs that are not lockstep's, of
               which there is no twin (compare --repeat measures a band of those).

`lockstep explain exact` tells what decides without any bound. docs/meaning.md has the reasons, and a picture.
)"},
    {"exact", "Exact arithmetic: layouts that cannot change a bit.",
     R"(With `arithmetic: exact` each row's loss and gradient is computed by itself, at shapes that no layout changes, and sums over
rows and ranks are made of integers and rounded once. Two runs of one objective agree in every bit of every step, whatever
their layouts, or the first bit that differs is a finding: step, phase, row and sample id, rank, tensor.

promised       on one machine type and build, layouts of equal objective train the same bits: any number of ranks, unequal
               and empty ones, accumulation, emulated and real. What differs means something.
not promised   it is not the arithmetic of your trainer: PyTorch's Reducer does not run, and what is wrong in it alone is not
               seen (emulated against real ranks, in native arithmetic, is the proof about that). Objectives that depend on
               the layout, as local negatives, differ. Statistics over rows (norm) are refused.

`certify: {exact: 100}` adds the first 100 steps of each cell in it to any matrix. Native against exact arithmetic at one
layout is rounding alone: configs/rounding.yaml shows how far that carries a run.
)"},
});

}  // namespace

std::span<const ExplainTopic> explain_topics() { return kTopics; }

const ExplainTopic* find_explain_topic(std::string_view name) {
  const auto found = std::ranges::find(kTopics, name, &ExplainTopic::name);
  return found == kTopics.end() ? nullptr : &*found;
}

}  // namespace lockstep
