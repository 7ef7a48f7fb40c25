// Planted bugs by which a run ends.

#include "scenarios/mutants/table.h"

// One row is one bug; it is easier to read packed than with a line for each of its fields.
// clang-format off

namespace lockstep {
namespace {

constexpr const char* kGatheredBefore = "candidates are gathered once per micro-step, before the row losses that it changes";

constexpr MutantRow kProcessRows[] = {
  {{.name = "stall",
    .help = "the rank stops making progress at `step`: tests the detection of hangs",
    .min_world = 1, .draws = {.rank = true}, .phase = "failed", .causes = "rank-hung"},
   // A deadlock, a frozen file system, a stopped process.
   LOCKSTEP_BUG(Planted,
     void before_step(int64_t step) override {
       while (strikes(step)) {
         pause();
       }
     })},
  {{.name = "throw",
    .help = "the rank throws an exception at `step`",
    .min_world = 1, .draws = {.rank = true}, .phase = "failed", .causes = "rank-threw"},
   LOCKSTEP_BUG(Planted,
     void before_step(int64_t step) override {
       if (strikes(step)) {
         throw std::runtime_error("planted: this rank throws at step " + std::to_string(step));
       }
     })},
  {{.name = "die",
    .help = "the rank kills itself with SIGKILL at `step`",
    .min_world = 1, .draws = {.rank = true}, .phase = "failed", .causes = "rank-died"},
   // As the system kills a rank when memory runs out: no handler, no last word.
   LOCKSTEP_BUG(Planted,
     void before_step(int64_t step) override {
       if (strikes(step)) {
         raise(SIGKILL);
       }
     })},
  {{.name = "gather_shape", .trainer = "energy",
    .help = "a rank sends actions of another shape",
    .report = "Lightning-AI/pytorch-lightning#7773", .draws = {.rank = true}, .phase = "failed",
    .causes = "shapes-differ",
    .beyond_exact = kGatheredBefore},
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       LossInput other = input;
       other.action_BA = input.action_BA.narrow(1, 0, input.action_BA.size(1) - 1);
       return right(other);
     })},
  {{.name = "gather_dtype", .trainer = "energy",
    .help = "a rank sends actions of another type",
    .report = "huggingface/accelerate#134", .draws = {.rank = true}, .phase = "failed",
    .causes = "dtype-differs",
    .beyond_exact = kGatheredBefore},
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       LossInput other = input;
       other.action_BA = input.action_BA.to(run().precision == Precision::float64 ? at::kFloat : at::kDouble);
       return right(other);
     })},
  {{.name = "gather_step", .trainer = "energy",
    .help = "a rank is a step ahead of the others",
    .draws = {.rank = true}, .phase = "failed", .causes = "step-differs",
    .beyond_exact = kGatheredBefore},
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       LossInput other = input;
       ++other.step;
       return right(other);
     })},
};

}  // namespace

void add_process_mutants(std::vector<MutantRow>& rows) {
  rows.insert(rows.end(), std::begin(kProcessRows), std::end(kProcessRows));
}

}  // namespace lockstep
