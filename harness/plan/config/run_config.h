#pragma once

#include <any>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/base/text.h"

// How much of each tensor a trace keeps.

namespace lockstep {

/// Nothing is written | a fingerprint | and four statistics | and every value.
enum class TraceLevel { off, hash, stats, full };

// What carries the collectives of real ranks.

/// gloo: Gloo over the memory of the host | nccl: c10d's ProcessGroupNCCL, one GPU a rank | gloo_cuda: Gloo over tensors in GPU
/// memory, any number of ranks on one GPU. The latter two by a plugin (harness/trainers/comm/gpu_plugin.h).
enum class Transport { gloo, nccl, gloo_cuda };

/// As configs, results and reports write it.
std::string_view word_of(Transport transport);

// What to run: a fully resolved, hashable description of one run. What holds for every trainer stands here; the rest is its own
// section, behind harness/plan/config/trainer_spec.h.

struct TrainerSpec;

/// V ranks of B rows each, written "VxB": 8x3 is eight ranks with three rows.
struct Layout {
  int world_size = 1;
  int rows_per_rank = 24;
  int global_batch() const { return world_size * rows_per_rank; }
  bool operator==(const Layout&) const = default;
};

/// What ranks are: threads of one process, which exchange through its memory | real, one process each (Transport: what they
/// exchange through; ProcessStart: how they begin).
enum class Backend { emulated, gloo };
/// How a step's rows are partitioned to ranks: B each | unequal counts | the last rank gets none.
enum class RowPartition { equal, unequal, one_empty };
/// bfloat16: energies and gradients in bfloat16 from weights whose master copy is float32.
enum class Precision { float32, float64, bfloat16 };
/// native: what PyTorch's reduction of whole shards gives, which depends on the layout in its last bits | exact: each
/// row by itself, sums over rows without rounding, so that no layout can matter (docs/meaning.md).
enum class Arithmetic { native, exact };
enum class OptimizerKind { sgd, adam, adamw };
/// Every rank updates every parameter | each rank reduces, keeps the optimizer's state of and updates its part of the parameters, and the
/// parts are gathered (ZeRO 1 and 2).
enum class UpdatePartition { whole, sharded };
/// With k ranks: learning rate times 1 | k | sqrt k | sqrt k with 1 - beta1 and 1 - beta2 times k and eps
/// over sqrt k (Malladi et al. 2022, the square-root rule of Adam).
enum class LrRule { none, linear, sqrt, adam_sqrt };
enum class Schedule { constant, warmup, cosine };
enum class RankSeed {
  keyed,
  plus_rank,
  same
};  ///< draws keyed by sample | seed + rank | one stream on all ranks
/// How a run's processes come to be: forked from one that has loaded LibTorch | started anew, one program
/// each.
enum class ProcessStart { forked, executed };
/// What an A/A pair differs in: nothing | the order of rows within a step | the draws of dropout and noise |
/// initial weights by one unit in the last place.
enum class Perturbation { none, row_order, random_draws, epsilon };
enum class DataSource { basic_motions, synthetic, ts_files };

struct DataConfig {
  DataSource source = DataSource::basic_motions;
  std::string train_file;  ///< `.ts` file; empty: where ci/bootstrap put BasicMotions
  std::string test_file;
  bool shuffle = true;
  bool drop_last = true;  ///< PyTorch's DistributedSampler and DataLoader, both with drop_last
  int prefetch = 0;       ///< steps whose rows a thread prepares ahead
  // The synthetic generator alone:
  int series = 40;
  int series_steps = 100;
  int channels = 6;
  int64_t seed = 0;        ///< of the generated series, not of the run
  double correlation = 0;  ///< between pairs of one block, in [0, 1)
  int block = 1;           ///< pairs that are alike and stay together on a rank
};

/// A planted fault; `name` is "none" or one of the catalogue's mutants. Used to test the detectors.
struct MutantConfig {
  std::string name = "none";
  int64_t step = 0;     ///< first step at which it acts (flip_bit: the only one)
  int rank = -1;        ///< -1: every rank
  std::string tensor;   ///< parameter or prefix; empty: every one, or the trainer's usual one
  int bit = 20;         ///< flip_bit: which bit of the first element
  double factor = 1.0;  ///< grad_scale: the factor
  bool operator==(const MutantConfig&) const = default;
};

/// The forced comparison: instead of training, gradients are computed at another run's parameters and
/// batches.
struct ForcedConfig {
  std::string from;            ///< id of the run whose snapshots are loaded; empty: of none
  std::vector<int64_t> steps;  ///< steps at which gradients are computed
  int repeat = 0;              ///< always 0: it stands in the hash of every run
  std::string kept_step;  ///< file of a kept step's trace whose snapshots are loaded; empty: of none
  /// Computes in float64 what the run itself computes in its `precision`: what is left of a difference is meaning.
  bool twin = false;
  /// Id of the run in float64 whose scores decide which candidates a row takes, where a loss takes some of them: rounding then
  /// takes no others. Empty: its own scores decide.
  std::string chosen_by = {};
  /// Computes gradients at loaded snapshots; else the run trains freely.
  bool on() const { return !from.empty() || !kept_step.empty(); }
  /// Do both load the same snapshots?
  bool has_states_of(const ForcedConfig& other) const {
    return from == other.from && kept_step == other.kept_step;
  }
  bool operator==(const ForcedConfig&) const = default;
};

/// Checkpoints of a run, from which it goes on when it is started again (docs/checkpoint.md). What is trained does not
/// depend on them: a config without any has the hash that it had before there were checkpoints.
struct CheckpointConfig {
  int64_t every = 0;     ///< steps between saves; 0: none, and signals end the run at once
  int keep = 3;          ///< newest ones that stay, the best one among them
  std::string best;      ///< metric of evaluations by which `best_model` is chosen; empty: the trainer's own
  bool async = false;    ///< training goes on while a thread saves a copy of the state
  bool sharded = false;  ///< each rank writes a part of parameters and moments; else rank 0 writes all of them
  double grace_s = 30;   ///< from a signal to stop to the end of the save that it asks for
  bool required = false; ///< a run of which a save failed is failed at its end
  bool on() const { return every > 0; }
  bool operator==(const CheckpointConfig&) const = default;
};

/// What becomes of a gradient that is not finite: nothing | the run ends | no rank takes the step's update.
enum class NanGuard { off, stop, skip };

/// How a run is watched while it goes (docs/faults.md). A config without any of it has the hash that it had before.
struct WatchConfig {
  /// Longest time without progress of the rank that the others wait for, by what it does; 0: timeout_s and two seconds.
  double step_s = 0, evaluation_s = 0, save_s = 0, load_s = 0, teardown_s = 0;
  double slow_s = 0;  ///< the same of a rank that computes all the while, whatever it does; 0: ten times timeout_s and two seconds, or more
  bool comm_check = false;  ///< ranks compare what they are about to call before each collective
  NanGuard nan_guard = NanGuard::off;
  bool operator==(const WatchConfig&) const = default;
};

/// Steps between two evaluations; 0: one at the end. Or `never`, not there either.
class EvaluationPeriod {
 public:
  constexpr EvaluationPeriod(int64_t steps) : steps_(steps) {}
  static constexpr EvaluationPeriod never() { return {-1}; }
  constexpr bool is_never() const { return steps_ < 0; }
  constexpr int64_t steps() const { return steps_; }
  /// After that many of all a run's steps?
  constexpr bool due(int64_t done, int64_t all) const {
    return !is_never() && (done == all || (steps_ > 0 && done % steps_ == 0));
  }
  /// In a whole run.
  constexpr int64_t evaluations(int64_t all) const {
    if (is_never()) return 0;
    return steps_ > 0 ? (all - 1) / steps_ + 1 : 1;
  }
  bool operator==(const EvaluationPeriod&) const = default;

 private:
  int64_t steps_;
};

/// What every trainer's runs have.
struct CoreConfig {
  DataConfig data;
  Layout layout;
  Backend backend = Backend::emulated;
  Transport transport = Transport::gloo;  ///< of real ranks' collectives; emulated ones have none, and planned runs of them say gloo
  int64_t steps = 600;
  int64_t stop_after = 0;  ///< stop after that many steps; schedules still reach to `steps`; 0: run all
  int64_t seed = 0;
  std::string resume_from;  ///< id of the run whose snapshot training goes on from; empty: it begins
  int64_t resume_step = 0;  ///< the step before which that snapshot was taken, the first that is trained

  RowPartition rows = RowPartition::equal;
  int64_t accumulation = 1;               ///< micro-steps into which each rank's rows of a step are divided
  Precision precision = Precision::float32;
  Arithmetic arithmetic = Arithmetic::native;
  int oracle_world =
      0;  ///< > 0: one process computes, by the loss's plain reference, what that many ranks should compute
  RankSeed rank_seed = RankSeed::keyed;
  Perturbation perturb = Perturbation::none;

  OptimizerKind optimizer = OptimizerKind::adam;
  double lr = 1e-3;
  LrRule lr_rule = LrRule::none;
  double lr_scale = 1.0;
  Schedule schedule = Schedule::constant;
  int64_t warmup_steps = 0;
  double momentum = 0.0;  ///< sgd
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  double clip_norm = 0.0;  ///< 0: no clipping; applied after the reduction
  UpdatePartition update = UpdatePartition::whole;
  double average_decay = 0.0;  ///< d of averaged weights: average = d * average + (1 - d) * parameter after each update; 0: none

  int64_t bucket_cap_bytes = 0;  ///< 0: PyTorch's default, {1 MiB, 25 MiB}
  bool gradient_as_bucket_view = false;
  bool find_unused_parameters = false;

  ProcessStart process_start = ProcessStart::forked;
  TraceLevel trace = TraceLevel::hash;
  std::vector<int64_t> snapshot_steps;  ///< steps before which the parameters are kept whole in the trace
  EvaluationPeriod eval_every = 25;     ///< steps between evaluations; 0: only at the end; or never
  ForcedConfig forced;
  CheckpointConfig checkpoint;
  WatchConfig watch;
  MutantConfig mutant, second_mutant;
  double timeout_s = 60.0;  ///< longest wait of one collective, and longest time without a finished step
  bool control_guard = false;  ///< ranks compare what steers a step before its collectives
};

/// How long a rank may compute without a report, where neither watch.slow_s nor what the plan expects of its run says more.
inline double longest_silence_s(const CoreConfig& config) {
  constexpr double kTimes = 10, kBeyond_s = 2;
  return kTimes * (config.timeout_s + kBeyond_s);
}

/// What a run computes in: its `precision`, or float64 if it is the twin of one that has that precision.
inline Precision computed_precision(const CoreConfig& config) {
  return config.forced.twin ? Precision::float64 : config.precision;
}

/// Equal configs compute the same bits.
struct RunConfig : CoreConfig {
  /// Of the first trainer, with its defaults.
  RunConfig();
  /// A run of that trainer, with its defaults.
  explicit RunConfig(const TrainerSpec& trainer);

  std::string trainer;
  std::any own;  ///< the trainer's own settings, see TrainerSpec::section; its accessor knows their type
};

/// Steps that the run takes: `stop_after` if it is set, else `steps`. Of forced runs: at how many steps
/// gradients are computed.
int64_t steps_to_run(const RunConfig& config);

/// The layout of the ranks that a run stands for: its own, or with oracle_world = V that of V ranks.
Layout meant_layout(const RunConfig& config);

// A trainer's own settings within a run's.

/// Of a run of this trainer; const where the run's are.
template <class Own, class Run>
auto& own_settings(Run& config, std::string_view trainer) {
  auto* own = std::any_cast<Own>(&config.own);
  LOCKSTEP_CHECK(own != nullptr, "only runs of the trainer " + std::string(trainer) + " have its settings");
  return *own;
}

// What a layout is called.

/// "3x8": ranks and rows of each, as configs write it.
inline std::string layout_name(const Layout& layout) {
  return std::to_string(layout.world_size) + "x" + std::to_string(layout.rows_per_rank);
}

}  // namespace lockstep
