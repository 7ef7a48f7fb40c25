// The core's table: one line a key. A test counts the structs' members, so that none is forgotten here.

#include <algorithm>
#include <map>

#include "harness/verdict/config/field.h"
#include "harness/verdict/config/mutants.h"
#include "harness/verdict/config/ranges.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/config/words.h"

namespace lockstep {

LOCKSTEP_WORDS(Backend, gloo, "emulated", "real")
LOCKSTEP_WORDS_BOTH_WAYS(Transport, gloo_cuda, "gloo", "nccl", "gloo_cuda")
LOCKSTEP_WORDS(RowPartition, one_empty, "equal", "unequal", "one_empty")
LOCKSTEP_WORDS(Precision, bfloat16, "float32", "float64", "bfloat16")
LOCKSTEP_WORDS(Arithmetic, exact, "native", "exact")
LOCKSTEP_WORDS(ProcessStart, executed, "forked", "executed")
LOCKSTEP_WORDS(Perturbation, epsilon, "none", "row_order", "random_draws", "epsilon")
LOCKSTEP_WORDS(OptimizerKind, adamw, "sgd", "adam", "adamw")
LOCKSTEP_WORDS(LrRule, adam_sqrt, "none", "linear", "sqrt", "adam_sqrt")
LOCKSTEP_WORDS(Schedule, cosine, "constant", "warmup", "cosine")
LOCKSTEP_WORDS(RankSeed, same, "keyed", "plus_rank", "same")
LOCKSTEP_WORDS(NanGuard, skip, "off", "stop", "skip")
LOCKSTEP_WORDS(TraceLevel, full, "off", "hash", "stats", "full")
LOCKSTEP_WORDS(DataSource, ts_files, "basic_motions", "synthetic", "ts_files")

namespace {

using namespace ranges;

std::vector<std::string_view> trainer_names() {
  std::vector<std::string_view> names;
  for (const TrainerSpec* trainer : trainer_specs()) names.push_back(trainer->name);
  return names;
}

std::vector<std::string_view> mutant_names() {
  std::vector<std::string_view> names{"none"};
  for (const MutantEntry& entry : mutant_entries()) names.push_back(entry.name);
  return names;
}

constexpr Range kThreshold{0, 604800};

// The member's own spelling is its key, but for one.
#define KEYED(key, member, ...)                                                  \
  {                                                                              \
    {key, __VA_ARGS__}, [](RunConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
#define RUN(member, ...) KEYED(#member, member, __VA_ARGS__)
const RunField kCoreFields[] = {
    RUN(trainer, kAny, "", "what one rank does", Words::any, Setter::user, &trainer_names),
    RUN(data.source, kAny, "", "where the time series come from"),
    RUN(data.train_file, kAny, "", "training series, a `.ts` file; only with source ts_files", Words::path),
    RUN(data.test_file, kAny, "", "test series, a `.ts` file; only with source ts_files", Words::path),
    RUN(data.shuffle, kAny, "", "a new order of samples each epoch"),
    RUN(data.drop_last, kAny, "", "leave out an incomplete last batch; else fill it up with the first rows"),
    RUN(data.prefetch, Range{0, 64}, "steps", "steps whose rows a thread prepares ahead"),
    RUN(data.series, Range{2, 1e6}, "series", "number of generated series; only with source synthetic"),
    RUN(data.series_steps, Range{2, 1e6}, "time steps",
        "length of each generated series; only with source synthetic"),
    RUN(data.channels, up_to(4096), "channels", "of generated series; only with source synthetic"),
    RUN(data.seed, kSeed, "", "seed of the generated series, not of the run; only with source synthetic"),
    RUN(data.correlation, Range{0, 1, false, true}, "",
        "correlation between the pairs of one block; only with source synthetic"),
    RUN(data.block, up_to(65536), "pairs",
        "pairs that are alike and stay together on a rank; only with source synthetic"),
    RUN(layout, kAny, "", "VxB: V ranks of B rows each; fitxB: as many ranks as there is room for"),
    KEYED("ranks", backend, kAny, "",
          "threads of one process (emulated), or one process per rank (real)"),
    KEYED("backend", transport, kAny, "",
          "what carries the collectives of real ranks: Gloo; NCCL, a GPU a rank; or Gloo over tensors on GPUs"),
    RUN(steps, kSteps, "steps", "length of a run"),
    RUN(stop_after, kStep, "steps", "stop after this many; schedules still extend to `steps`; 0: run all",
        Words::any, kPlanner),
    RUN(seed, kSeed, "", "seed of the run: initial weights, order of samples, noise", Words::any, kPlanner),
    RUN(resume_from, kAny, "", "cell of this matrix whose run training goes on from, perhaps of another layout; empty: it begins"),
    RUN(resume_step, kStep, "steps", "the step before which it leaves that run, the first that it trains itself"),
    RUN(rows, kAny, "", "how a step's rows are partitioned: equally, unequally, or none to the last rank"),
    RUN(accumulation, up_to(65536), "micro-steps",
        "gradient accumulation: each rank takes its rows of a step in this many parts"),
    RUN(precision, kAny, "",
        "precision of parameters, energies and gradients; bfloat16: parameters stay float32"),
    RUN(arithmetic, kAny, "",
        "exact: each row by itself and sums over rows without rounding, so that no layout changes a bit"),
    RUN(oracle_world, from(0), "ranks",
        "one process computes, by the loss's plain reference, what this many ranks should",
        Words::any, kPlanner),
    RUN(rank_seed, kAny, "", "random draws keyed by sample, from seed + rank, or one stream for all ranks"),
    RUN(perturb, kAny, "",
        "what an A/A pair differs in: order of rows, random draws, or initial weights by one last place"),
    RUN(optimizer, kAny, "", "update rule, in PyTorch's arithmetic"),
    RUN(lr, kPositive, "", "learning rate before lr_rule, lr_scale and schedule"),
    RUN(lr_rule, kAny, "", "with k ranks, learning rate times 1, k or sqrt k; adam_sqrt: betas and eps too"),
    RUN(lr_scale, kPositive, "", "a further factor of the learning rate"),
    RUN(schedule, kAny, "", "learning rate over the steps"),
    RUN(warmup_steps, kStep, "steps", "linear rise from 0 to the learning rate"),
    RUN(momentum, kFraction, "", "of sgd"),
    RUN(beta1, kFraction, "", "of adam and adamw: decay of the first moment"),
    RUN(beta2, kFraction, "", "of adam and adamw: decay of the second moment"),
    RUN(eps, Range{1e-30, 1e6}, "", "of adam and adamw: added to the root of the second moment"),
    RUN(weight_decay, kNotNegative, "", "added to the gradient (sgd, adam), or decoupled (adamw)"),
    RUN(clip_norm, kNotNegative, "",
        "largest norm of the whole gradient, after the reduction; 0: no clipping"),
    RUN(bucket_cap_bytes, from(0), "bytes", "largest bucket of the reducer; 0: PyTorch's default"),
    RUN(gradient_as_bucket_view, kAny, "", "gradients are views of the reducer's buckets"),
    RUN(find_unused_parameters, kAny, "", "the reducer looks for parameters without a gradient at each step"),
    RUN(process_start, kAny, "",
        "ranks are forked from one process that has loaded LibTorch, or each started as a program"),
    RUN(trace, kAny, "", "how much of each tensor the trace keeps; the run's bits do not depend on it"),
    RUN(snapshot_steps, kStep, "steps", "steps before which the parameters are kept whole in the trace"),
    RUN(eval_every, kStep, "steps", "steps between evaluations; 0: at the end alone; or never, which is what a question of mechanism takes by default"),
    RUN(forced.from, kAny, "", "run whose snapshots are loaded instead of training", Words::any, kPlanner),
    RUN(forced.steps, kStep, "steps", "steps at which gradients are computed", Words::any, kPlanner),
    RUN(forced.repeat, from(0), "", "which permutation of rows or ranks; 0: as they are", Words::any,
        kPlanner),
    RUN(forced.twin, kAny, "", "computes in float64 at the snapshots of a run in another precision", Words::any, kPlanner),
    RUN(forced.chosen_by, kAny, "", "run in float64 whose scores decide which candidates a row takes", Words::any, kPlanner),
    RUN(forced.kept_step, kAny, "", "trace of a kept step whose snapshots are loaded instead of training", Words::any,
        kPlanner),
    RUN(checkpoint.every, kStep, "steps", "steps between saves of all that the run goes on from; 0: none"),
    RUN(checkpoint.keep, Range{2, 1e6}, "checkpoints", "newest ones that stay, the best one among them"),
    RUN(checkpoint.best, kAny, "", "metric by which best_model is chosen; empty: the trainer's own"),
    RUN(checkpoint.async, kAny, "", "training goes on while a thread saves a copy of the state"),
    RUN(checkpoint.sharded, kAny, "",
        "each rank writes a part of parameters and moments; else rank 0 writes all of them"),
    RUN(checkpoint.grace_s, Range{0.001, 604800}, "s",
        "from a signal to stop (SIGTERM, SIGUSR1) to the end of the save that it asks for"),
    RUN(watch.step_s, kThreshold, "s", "longest time without progress within a step; 0: timeout_s and two seconds"),
    RUN(watch.evaluation_s, kThreshold, "s", "the same of an evaluation"),
    RUN(watch.save_s, kThreshold, "s", "the same of a save"),
    RUN(watch.load_s, kThreshold, "s", "the same before the first step: rendezvous, data, a checkpoint's load"),
    RUN(watch.teardown_s, kThreshold, "s", "the same after the last step"),
    RUN(watch.slow_s, kThreshold, "s",
        "the same of a rank that computes all the while: it is slow, not hung; 0: ten times timeout_s + 2 s, and no less than twenty times what "
        "the plan expects of the run"),
    RUN(watch.comm_check, kAny, "", "before each collective ranks compare what they are about to call"),
    RUN(watch.nan_guard, kAny, "", "a gradient that is not finite ends the run (stop), or no rank takes the update (skip)"),
    RUN(mutant.name, kAny, "", "a planted fault that tests the detectors; only in cells",
                               Words::any, Setter::user, &mutant_names),
    RUN(mutant.step, kStep, "steps", "first step at which the fault acts"),
    RUN(mutant.rank, Range{-1, 4095}, "", "the rank that it acts on; -1: every rank"),
    RUN(mutant.tensor, kAny, "", "parameter that it acts on; empty: every parameter"),
    RUN(mutant.bit, Range{0, 31}, "", "flip_bit: which bit of the first element, 0 the lowest"),
    RUN(mutant.factor, Range{-1e30, 1e30}, "", "grad_scale: the factor"),
    RUN(second_mutant.name, kAny, "", "a second one", Words::any, Setter::user, &mutant_names),
    RUN(second_mutant.step, kStep, "steps", "first step at which the fault acts"),
    RUN(second_mutant.rank, Range{-1, 4095}, "", "the rank that it acts on; -1: every rank"),
    RUN(second_mutant.tensor, kAny, "", "parameter that it acts on; empty: every parameter"),
    RUN(second_mutant.bit, Range{0, 31}, "", "flip_bit: which bit of the first element, 0 the lowest"),
    RUN(second_mutant.factor, Range{-1e30, 1e30}, "", "grad_scale: the factor"),
    RUN(timeout_s, Range{0.001, 604800}, "s",
        "longest wait of one collective, and longest time without a finished step"),
    RUN(control_guard, kAny, "",
        "before each step ranks compare its number, rate, random offset, parameters and the trainer's own control values"),
};
#undef RUN
#undef KEYED

/// Fields of one trainer's runs, and where each key stands among them.
struct FieldIndex {
  std::vector<const RunField*> fields, by_key;

  explicit FieldIndex(const TrainerSpec* trainer) {
    for (const RunField& field : kCoreFields) fields.push_back(&field);
    if (trainer != nullptr && trainer->fields != nullptr) {
      for (const RunField& field : trainer->fields()) fields.push_back(&field);
    }
    by_key = fields;
    std::ranges::sort(by_key, {}, key_of);
  }
  static std::string_view key_of(const RunField* field) { return field->spec.key; }
  const RunField* find(std::string_view key) const {
    const auto at = std::ranges::lower_bound(by_key, key, {}, key_of);
    return at != by_key.end() && (*at)->spec.key == key ? *at : nullptr;
  }
};

const FieldIndex& index_of(const TrainerSpec& trainer) {
  static const std::map<const TrainerSpec*, FieldIndex> indices = [] {
    std::map<const TrainerSpec*, FieldIndex> all;
    for (const TrainerSpec* spec : trainer_specs()) all.emplace(spec, FieldIndex(spec));
    return all;
  }();
  return indices.at(&trainer);
}

}  // namespace

std::span<const RunField> core_fields() { return kCoreFields; }

const RunField* find_core_field(std::string_view key) {
  static const FieldIndex index(nullptr);
  return index.find(key);
}

std::span<const RunField* const> fields_of(const TrainerSpec& trainer) { return index_of(trainer).fields; }

const RunField* find_field(const TrainerSpec& trainer, std::string_view key) {
  return index_of(trainer).find(key);
}

const TrainerSpec* owner_of_key(std::string_view key) {
  for (const TrainerSpec* spec : trainer_specs()) {
    const auto own = spec->fields();
    if (std::ranges::any_of(own, [key](const RunField& field) { return field.spec.key == key; })) return spec;
  }
  return nullptr;
}

}  // namespace lockstep
