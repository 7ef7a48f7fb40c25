#include "scenarios/mutants/table.h"

// Planted bugs by which a run ends.

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

// Planted bugs in what a step is given beside its rows: random streams and control values.

// One row is one bug; it is easier to read packed than with a line for each of its fields.
// clang-format off

namespace lockstep {
namespace {

constexpr MutantRow kStreamsRows[] = {
  // Random streams.
  {{.name = "same_noise", .trainer = "energy",
    .help = "one seed on all ranks and streams by place: ranks draw the same noise",
    .report = "huggingface/transformers#31412", .phase = "random", .where = "context_noise|dropout",
    .causes = "same-stream-on-all-ranks"},
   LOCKSTEP_BUG(PlantedInEnergy,
     const RandomStreams& streams(int64_t step, const RandomStreams& right) override {
       return acts(step) ? same_ : right;
     }
     const RandomStreams same_{RankSeed::same, run().seed, rank()};)},
  {{.name = "noise_by_rank", .trainer = "energy",
    .help = "streams of seed + rank, by place: draws depend on the layout",
    .report = "ecmwf/anemoi-core#595", .phase = "random", .where = "context_noise|dropout",
    .causes = "stream-keyed-by-rank"},
   LOCKSTEP_BUG(PlantedInEnergy,
     const RandomStreams& streams(int64_t step, const RandomStreams& right) override {
       return acts(step) ? by_rank_ : right;
     }
     const RandomStreams by_rank_{RankSeed::plus_rank, run().seed, rank()};)},
  {{.name = "extra_draws", .trainer = "energy",
    .help = "a rank draws four numbers more than it needs",
    .draws = {.rank = true}, .phase = "random", .where = "context_noise|dropout", .causes = "extra-draws"},
   // Everything behind them moves.
   LOCKSTEP_BUG(PlantedInEnergy,
     uint64_t row_key(int64_t step, Purpose /*purpose*/, uint64_t key) override {
       return acts(step) ? key + more_ : key;
     }
     uint64_t extra_draws(int64_t step, Purpose /*purpose*/) override { return acts(step) ? more_ : 0; }
     const uint64_t more_ = 4;)},
  {{.name = "dropout_off", .trainer = "energy",
    .help = "a replica left in evaluation mode: no dropout",
    .settings = "dropout=0.1", .draws = {.rank = true}, .phase = "random", .where = "dropout",
    .causes = "draws-missing"},
   LOCKSTEP_BUG(PlantedInEnergy,
     double dropout(int64_t step, double probability) override { return acts(step) ? 0 : probability; })},
  {{.name = "dropout_not_replayed", .trainer = "energy",
    .help = "the second of two passes over tiles draws masks of its own",
    .report = "luyug/GC-DPR#12", .settings = "tile_columns=2 dropout=0.1", .phase = "random",
    .where = "dropout replay", .causes = "dropout-not-replayed"},
   LOCKSTEP_BUG(PlantedInEnergy,
     uint64_t replay_key(int64_t step, uint64_t key) override { return acts(step) ? key + 1 : key; })},
  {{.name = "stream_not_advanced", .trainer = "energy",
    .help = "a rank's streams stay where they were at the step before",
    .report = "huggingface/accelerate#2016", .draws = {.rank = true}, .phase = "random",
    .where = "context_noise|dropout", .causes = "stream-not-advanced", .first_step = 1},
   LOCKSTEP_BUG(PlantedInEnergy,
     int64_t stream_step(int64_t step) override { return acts(step) ? config().step - 1 : step; })},
  {{.name = "masks_drawn_again", .trainer = "classify",
    .help = "the backward pass computes the hidden layer again with dropout masks of its own",
    .report = "allenai/OLMo-core#828", .settings = "activation_checkpointing=true dropout=0.1", .min_world = 1,
    .phase = "random", .where = "dropout", .causes = "masks-drawn-again"},
   // The state of the generator is not put back before the layer is computed again.
   LOCKSTEP_BUG(PlantedInClassify,
     uint64_t recomputed_key(int64_t step, uint64_t key) override { return acts(step) ? key + 1 : key; })},
  // Control values.
  {{.name = "scheduler_per_rank",
    .help = "the schedule is stepped once per rank instead of once per step",
    .report = "huggingface/accelerate#2142", .settings = "schedule=cosine",
    // Begun later, or with two ranks, it looks like a schedule that was shifted.
    .min_world = 3, .phase = "control", .where = "learning_rate",
    .causes = "scheduler-stepped-per-rank", .last_step = 0},
   LOCKSTEP_BUG(Planted,
     double learning_rate(int64_t step, double rate) override {
       if (!acts(step)) {
         return rate;
       }
       const int64_t stepped = config().step + (step - config().step + 1) * run().layout.world_size - 1;
       return lockstep::learning_rate(run(), std::min(stepped, run().steps));
     })},
  {{.name = "rate_linear",
    .help = "the learning rate times the world size, at the same rows a step",
    .report = "huggingface/diffusers#3954", .phase = "control", .where = "learning_rate",
    .causes = "rate-scaled-linear"},
   LOCKSTEP_BUG(Planted,
     double learning_rate(int64_t step, double rate) override {
       return acts(step) ? rate * world() : rate;
     })},
  {{.name = "rate_sqrt",
    .help = "the learning rate times the root of the world size, at the same rows a step",
    .phase = "control", .where = "learning_rate", .causes = "rate-scaled-sqrt"},
   LOCKSTEP_BUG(Planted,
     double learning_rate(int64_t step, double rate) override {
       return acts(step) ? rate * std::sqrt(world()) : rate;
     })},
  {{.name = "schedule_shifted",
    .help = "the schedule runs one step ahead",
    .settings = "schedule=cosine", .phase = "control", .where = "learning_rate",
    .causes = "schedule-shifted"},
   // It is stepped before the update instead of behind it.
   LOCKSTEP_BUG(Planted,
     double learning_rate(int64_t step, double rate) override {
       return acts(step) ? lockstep::learning_rate(run(), step + 1) : rate;
     })},
};

}  // namespace

void add_stream_mutants(std::vector<MutantRow>& rows) {
  rows.insert(rows.end(), std::begin(kStreamsRows), std::end(kStreamsRows));
}

}  // namespace lockstep
