// The tables: one line a key. A test counts the structs' members, so that none is forgotten here.

#include <algorithm>
#include <array>

#include "harness/config/field.h"

namespace lockstep {
namespace {

constexpr double kMostInt = 2147483647.0;
constexpr double kMostExact = 9007199254740991.0;  // 2^53 - 1: every reader of JSON keeps it exactly

constexpr Range kAny{};
// Beyond these a value is a slip of the pen, or leaves what the arithmetic holds: float32 ends at 3e38 and
// 1e-38, and what is multiplied with such a value must not leave it either. docs/config.md gives the reasons.
constexpr Range kNotNegative{0, 1e6};
constexpr Range kPositive{0, 1e6, true, false};
constexpr Range kScale{1e-6, 1e6};
constexpr Range kLength{1, 1e6};        // of series and windows, in time steps
constexpr Range kMetricUnits{0, 1e12};  // activation_bytes has the largest unit
constexpr Range kFraction{0, 1, false, true};
constexpr Range from(double low) { return {low, kMostInt, false, false}; }
constexpr Range up_to(double high) { return {1, high}; }
constexpr Range kStep{0, 1e9, false, false};
constexpr Range kSteps{1, 1e9, false, false};
constexpr Range kSeed{0, kMostExact, false, false};

// The member's own spelling is its key.
#define RUN(member, ...)                                                       \
  {                                                                            \
    {#member, __VA_ARGS__}, [](RunConfig& c) -> FieldRef { return &c.member; } \
  }
#define MATRIX(member, ...)                                                 \
  {                                                                         \
    {#member, __VA_ARGS__}, [](Matrix& m) -> FieldRef { return &m.member; } \
  }
constexpr Setter kPlanner = Setter::internal;

const RunField kRunFields[] = {
    RUN(trainer, kAny, "", "what one rank does", Words::scenarios),
    RUN(data.source, kAny, "", "where the time series come from"),
    RUN(data.train_file, kAny, "", "training series, a `.ts` file; of source ts_files", Words::path),
    RUN(data.test_file, kAny, "", "test series, a `.ts` file; of source ts_files", Words::path),
    RUN(data.context_steps, kLength, "time steps", "length of the context"),
    RUN(data.action_steps, kLength, "time steps", "length of the action chunk that follows the context"),
    RUN(data.stride, kLength, "time steps", "every stride-th start in a series is a pair"),
    RUN(data.holdout_series, up_to(1e6), "series",
        "training series kept back to fit the evaluation temperature"),
    RUN(data.min_context, kLength, "time steps",
        "contexts are cut to a keyed length from this to context_steps"),
    RUN(data.shuffle, kAny, "", "a new order of samples each epoch"),
    RUN(data.drop_last, kAny, "", "leave out the rows that fill no whole batch, else repeat the first ones"),
    RUN(data.cache, kAny, "", "pairs are cut and standardised once; else anew at each step"),
    RUN(data.prefetch, Range{0, 64}, "steps", "steps whose rows a thread prepares ahead"),
    RUN(data.series, Range{2, 1e6}, "series", "generated series; of source synthetic"),
    RUN(data.series_steps, Range{2, 1e6}, "time steps",
        "length of each generated series; of source synthetic"),
    RUN(data.channels, up_to(4096), "channels", "of generated series; of source synthetic"),
    RUN(data.seed, kSeed, "", "of the generated series, not of the run; of source synthetic"),
    RUN(data.correlation, Range{0, 1, false, true}, "",
        "between the pairs of one block; of source synthetic"),
    RUN(data.block, up_to(65536), "pairs",
        "pairs that are alike and stay together on a rank; of source synthetic"),
    RUN(layout, kAny, "", "VxB: V ranks of B rows each"),
    RUN(ranks, kAny, "", "threads of one process (emulated), or one process a rank on Gloo (real)"),
    RUN(steps, kSteps, "steps", "length of a run"),
    RUN(stop_after, kStep, "steps", "stop after that many, schedules still reach to `steps`; 0: run all",
        Words::any, kPlanner),
    RUN(seed, kSeed, "", "of the run: initial weights, order of samples, noise", Words::any, kPlanner),
    RUN(loss, kAny, "", "form of the loss", Words::losses),
    RUN(negatives, kAny, "",
        "candidates of the loss: rows of the rank itself or of all ranks, explicit ones, or both"),
    RUN(layer.count, up_to(4096), "negatives", "explicit negatives of each row"),
    RUN(layer.layers, Range{0, 255}, "",
        "layers of the action head whose predictions are negatives; []: 0, n/3, n/2, n - 2"),
    RUN(layer.as_written, kAny, "", "explicit negatives as people were told, with their mistakes"),
    RUN(model.width, up_to(8192), "", "of the encodings"),
    RUN(model.hidden, up_to(8192), "", "of the hidden layers"),
    RUN(model.action_layers, up_to(256), "layers",
        "of the action head that explicit negatives are predicted by"),
    RUN(tile_columns, from(1), "candidates",
        "energies of so many candidates are held at once, in two passes"),
    RUN(mask_duplicates, kAny, "", "candidates with the row's own sample id are no negatives"),
    RUN(invalid_rows, kFraction, "", "share of the rows, keyed by sample, that do not count in the loss"),
    RUN(rows, kAny, "", "how a step's rows are dealt: equally, unequally, or none to the last rank"),
    RUN(activation_checkpointing, kAny, "",
        "activations are computed again in the backward pass instead of being kept"),
    RUN(accumulation, up_to(65536), "micro-steps", "each rank's rows of a step are taken in so many parts"),
    RUN(precision, kAny, "", "of parameters, energies and gradients; bfloat16: parameters stay float32"),
    RUN(running_stats, kAny, "",
        "keep a running mean of energies, summed over ranks and broadcast by rank 0"),
    RUN(oracle_world, from(0), "ranks",
        "one process computes, by the loss's plain reference, what so many ranks mean", Words::any, kPlanner),
    RUN(temperature, kScale, "", "initial value of the learned temperature"),
    RUN(dropout, kFraction, "", "probability to drop, in the energy head"),
    RUN(context_noise, kNotNegative, "standard deviations", "noise on the context's standardised channels"),
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
    RUN(process_start, kAny, "", "ranks forked from one process that has loaded LibTorch, or programs each"),
    RUN(trace, kAny, "", "how much of each tensor the trace keeps; the run's bits do not depend on it"),
    RUN(snapshot_steps, kStep, "steps", "steps before which the parameters are kept whole in the trace"),
    RUN(eval_every, kStep, "steps", "steps between evaluations; 0: at the end alone"),
    RUN(forced.from, kAny, "", "run whose snapshots are loaded instead of training", Words::any, kPlanner),
    RUN(forced.steps, kStep, "steps", "steps at which gradients are computed", Words::any, kPlanner),
    RUN(forced.repeat, from(0), "", "which permutation of rows or ranks; 0: as they are", Words::any,
        kPlanner),
    RUN(mutant.name, kAny, "", "a planted fault, in cells alone: tests the detectors", Words::mutants),
    RUN(mutant.step, kStep, "steps", "first step at which the fault acts"),
    RUN(mutant.rank, Range{-1, 4095}, "", "the rank that it acts on; -1: every rank"),
    RUN(mutant.tensor, kAny, "", "parameter that it acts on; empty: every parameter"),
    RUN(mutant.bit, Range{0, 31}, "", "flip_bit: which bit of the first element, 0 the lowest"),
    RUN(mutant.factor, Range{-1e30, 1e30}, "", "grad_scale: the factor"),
    RUN(second_mutant.name, kAny, "", "a second one", Words::mutants),
    RUN(second_mutant.step, kStep, "steps", "first step at which the fault acts"),
    RUN(second_mutant.rank, Range{-1, 4095}, "", "the rank that it acts on; -1: every rank"),
    RUN(second_mutant.tensor, kAny, "", "parameter that it acts on; empty: every parameter"),
    RUN(second_mutant.bit, Range{0, 31}, "", "flip_bit: which bit of the first element, 0 the lowest"),
    RUN(second_mutant.factor, Range{-1e30, 1e30}, "", "grad_scale: the factor"),
    RUN(timeout_s, Range{0.001, 604800}, "s",
        "longest wait of one collective, and longest time without a finished step"),
};

const MatrixField kMatrixFields[] = {
    MATRIX(name, kAny, "", "name of the matrix and of its folder under out/", Words::name),
    MATRIX(question, kAny, "", "what is asked of the cells", Words::questions),
    MATRIX(primary.metric, kAny, "", "the metric that the outcome is judged by", Words::metrics),
    MATRIX(primary.margin, Range{1e-12, 1e12}, "units of the metric",
           "differences within ± margin count as equal"),
    MATRIX(primary.target, kMetricUnits, "units of the metric",
           "the value that runs are timed to, in steps; 0: none"),
    MATRIX(primary.alpha, Range{1e-9, 0.5, false, true}, "", "level of each of the two one-sided tests"),
    MATRIX(band.repeats, Range{4, 64}, "runs",
           "permuted repeats of the reference that measure the rounding band"),
    MATRIX(band.factor, Range{8, 1e12}, "", "the band is this times the largest difference over repeats"),
    MATRIX(band.floor, Range{1e-6, 1e12}, "", "c of the band's floor, c * epsilon * sum of |terms|"),
    MATRIX(band.exact, Range{0, 1}, "",
           "> 0: the band is this times the larger of |gradient| and |sum of |terms||, without repeats"),
    MATRIX(ranks, kAny, "",
           "auto: emulated ranks, certified by a prefix on real ones; or all emulated; or all real"),
    MATRIX(certify_steps, kStep, "steps", "length of the real prefix of each cell, one seed a cell; 0: none"),
    MATRIX(forced_steps, kStep, "steps",
           "steps at which gradients are compared at the reference's parameters; [] : none"),
    MATRIX(seeds_auto.first, Range{2, 10000}, "seeds", "of `seeds: auto`: at the first look"),
    MATRIX(seeds_auto.step, Range{1, 10000}, "seeds", "of `seeds: auto`: added from look to look"),
    MATRIX(seeds_auto.most, Range{2, 10000}, "seeds", "of `seeds: auto`: at the last look"),
    MATRIX(seeds_auto.budget_s, Range{0, 31536000}, "s",
           "of `seeds: auto`: no look is begun after so long; 0: no limit"),
    MATRIX(timing.steps, Range{2, 1e6}, "steps", "length of a timed run"),
    MATRIX(timing.repeats, Range{3, 1000}, "runs", "of each timed layout"),
    MATRIX(allow_no_negatives, kAny, "",
           "a cell may have no negatives at all, though nothing can be learned so"),
    MATRIX(replay, kAny, "",
           "trace of a kept step: that step alone is computed, from the state that it holds", Words::path),
    MATRIX(allow_unequal_batch, kAny, "", "a cell may have another global batch than its reference"),
};
#undef RUN
#undef MATRIX

template <class Owner>
class Index {
 public:
  explicit Index(std::span<const Field<Owner>> fields) {
    for (const Field<Owner>& field : fields) sorted_.push_back(&field);
    std::sort(sorted_.begin(), sorted_.end(), [](auto* a, auto* b) { return a->spec.key < b->spec.key; });
  }
  const Field<Owner>* find(std::string_view key) const {
    const auto at =
        std::lower_bound(sorted_.begin(), sorted_.end(), key,
                         [](auto* field, std::string_view wanted) { return field->spec.key < wanted; });
    return at != sorted_.end() && (*at)->spec.key == key ? *at : nullptr;
  }

 private:
  std::vector<const Field<Owner>*> sorted_;
};

}  // namespace

std::span<const RunField> run_fields() { return kRunFields; }

std::span<const MatrixField> matrix_fields() {
  static const std::vector<MatrixField> kAll = [] {
    std::vector<MatrixField> fields(std::begin(kMatrixFields), std::end(kMatrixFields));
    for (MatrixField& field : question_fields()) fields.push_back(std::move(field));
    return fields;
  }();
  return kAll;
}

const RunField* find_run_field(std::string_view key) {
  static const Index<RunConfig> index(kRunFields);
  return index.find(key);
}

const MatrixField* find_matrix_field(std::string_view key) {
  static const Index<Matrix> index(matrix_fields());
  return index.find(key);
}

}  // namespace lockstep
