#include "harness/plan/config/trainer_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "harness/base/text.h"
#include "harness/plan/config/field.h"

namespace lockstep {

RunConfig::RunConfig() : RunConfig(*trainer_specs().front()) {}

RunConfig::RunConfig(const TrainerSpec& spec) : trainer(spec.name), own(spec.section()) {}

int64_t ModelParameter::elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

const TrainerSpec* find_trainer_spec(std::string_view name) {
  const auto specs = trainer_specs();
  const auto at = std::ranges::find(specs, name, &TrainerSpec::name);
  return at == specs.end() ? nullptr : *at;
}

const TrainerSpec& spec_of(const RunConfig& config) {
  const TrainerSpec* spec = find_trainer_spec(config.trainer);
  LOCKSTEP_CHECK(spec != nullptr, "a config's trainer must exist");
  return *spec;
}

namespace {

constexpr std::array<CatalogueEntry, 4> kLosses{{
    {"hard", "InfoNCE over the quarter of the in-batch candidates that fits each row best"},
    {"infonce", "swap InfoNCE: each row's own action among its candidates"},
    {"sigmoid", "SigLIP-style: every pair judged alone, matching or not; no sum over candidates"},
    {"symmetric", "InfoNCE of rows and of columns; columns are summed over ranks by their log-sum-exp"},
}};

}  // namespace

std::span<const CatalogueEntry> catalogue_scenarios() {
  static const std::vector<CatalogueEntry> entries = [] {
    std::vector<CatalogueEntry> all;
    for (const TrainerSpec* spec : trainer_specs()) all.push_back({spec->name, spec->help});
    return all;
  }();
  return entries;
}
std::span<const CatalogueEntry> catalogue_losses() { return kLosses; }
std::span<const CatalogueEntry> catalogue_mutants() {
  static const std::vector<CatalogueEntry> entries = [] {
    std::vector<CatalogueEntry> all{{"none", "no fault is planted"}};
    for (const MutantEntry& entry : mutant_entries()) all.push_back({entry.name, entry.help});
    return all;
  }();
  return entries;
}

namespace {

constexpr std::string_view kArea = "auc_", kMean = "train_";

bool has_samples(const MetricSpec& metric, const SampleCounts& samples) {
  return samples.test >= metric.test_samples && samples.holdout >= metric.holdout_samples;
}

std::string why_unmeasured(const MetricSpec& metric, const RunConfig& config) {
  if (metric.when != MetricSpec::When::step && config.eval_every.is_never()) return "is measured by evaluations, and eval_every is never";
  return metric.unmeasured == nullptr ? "" : metric.unmeasured(config);
}

const MetricSpec* find_in(const TrainerSpec& trainer, std::string_view name) {
  const auto metrics = trainer.metrics();
  const auto at = std::ranges::find(metrics, name, &MetricSpec::name);
  return at == metrics.end() ? nullptr : &*at;
}

/// The metric that a name is made from, and the prefix in front of it.
struct Source {
  const MetricSpec* metric = nullptr;
  std::string_view prefix;
};

Source source_of(const TrainerSpec& trainer, std::string_view metric) {
  if (const MetricSpec* whole = find_in(trainer, metric)) return {whole, ""};
  for (const std::string_view prefix : {kArea, kMean}) {
    if (metric.starts_with(prefix)) return {find_in(trainer, metric.substr(prefix.size())), prefix};
  }
  return {};
}

std::string help_of(const TrainerSpec& trainer, std::string_view name) {
  const Source source = source_of(trainer, name);
  if (source.prefix == kArea) return "area under its curve over the length";
  if (source.prefix != kMean) return std::string(source.metric->help);
  return fmt::format("mean of {} over the last 50 steps",
                     source.metric->name == "loss" ? "the loss" : source.metric->name);
}

/// Entries of all trainers' metrics; names that trainers share once.
struct Catalogue {
  std::vector<std::string> texts;
  std::vector<CatalogueEntry> entries;

  Catalogue() {
    std::vector<std::pair<std::string, std::string>> all;
    for (const TrainerSpec* trainer : trainer_specs()) {
      for (const std::string& name : outcome_metrics(*trainer)) {
        const auto known = [&name](const auto& each) { return each.first == name; };
        if (std::ranges::none_of(all, known)) all.emplace_back(name, help_of(*trainer, name));
      }
    }
    texts.reserve(2 * all.size());
    for (auto& [name, help] : all) {
      texts.push_back(std::move(name));
      texts.push_back(std::move(help));
      entries.push_back({texts[texts.size() - 2], texts.back()});
    }
  }
};

}  // namespace

const MetricSpec* find_metric(std::string_view name) {
  for (const TrainerSpec* trainer : trainer_specs()) {
    if (const MetricSpec* metric = find_in(*trainer, name)) return metric;
  }
  return nullptr;
}

std::span<const CatalogueEntry> catalogue_metrics() {
  static const Catalogue catalogue;
  return catalogue.entries;
}

std::vector<std::string> outcome_metrics(const TrainerSpec& trainer) {
  std::vector<std::string> names;
  const auto metrics = trainer.metrics();
  for (const MetricSpec& metric : metrics) {
    if (metric.when != MetricSpec::When::step) names.emplace_back(metric.name);
  }
  for (const MetricSpec& metric : metrics) {
    if (metric.has_area) names.push_back(fmt::format("{}{}", kArea, metric.name));
  }
  for (const MetricSpec& metric : metrics) {
    if (!metric.train_words.empty()) names.push_back(fmt::format("{}{}", kMean, metric.name));
  }
  return names;
}

std::string unmeasured(std::string_view metric, const RunConfig& config,
                       const std::optional<SampleCounts>& samples) {
  const TrainerSpec& trainer = spec_of(config);
  const Source source = source_of(trainer, metric);
  if (source.metric == nullptr) return "";
  const MetricSpec& measured = *source.metric;
  if (const std::string why = why_unmeasured(measured, config); !why.empty()) {
    return fmt::format("{} {}", metric, why);
  }
  if (source.prefix == kArea && config.eval_every.evaluations(config.steps) < 2) {
    return fmt::format(
        "{} is the area under a curve of two evaluations or more, and there is one: eval_every is {}, "
        "steps {}",
        metric, config.eval_every.steps(), config.steps);
  }
  if (!samples || has_samples(measured, *samples)) return "";
  const bool test = samples->test < measured.test_samples;
  const std::string_view part = test ? "test" : "held-out";
  return fmt::format("{} needs {} {} {}, and there are {}; {}", metric,
                     test ? measured.test_samples : measured.holdout_samples, part, trainer.samples_word,
                     test ? samples->test : samples->holdout, trainer.how_to_get_samples(config, part));
}

std::string too_few_samples(const RunConfig& config, const SampleCounts& samples) {
  // Without drop_last a step takes what is left, and the first samples again.
  const int64_t needed = config.data.drop_last ? config.layout.global_batch() : config.data.block;
  if (samples.train >= needed) return "";
  const TrainerSpec& trainer = spec_of(config);
  return fmt::format("{} training {} are fewer than the {} rows of a step; {}", samples.train, trainer.samples_word,
                     needed, trainer.how_to_get_samples(config, "training"));
}

// The core's table: one line a key. A test counts the structs' members, so that none is forgotten here.

LOCKSTEP_WORDS(Backend, gloo, "emulated", "real")
LOCKSTEP_WORDS_BOTH_WAYS(Transport, gloo_cuda, "gloo", "nccl", "gloo_cuda")
LOCKSTEP_WORDS(RowPartition, one_empty, "equal", "unequal", "one_empty")
LOCKSTEP_WORDS(Precision, bfloat16, "float32", "float64", "bfloat16")
LOCKSTEP_WORDS(Arithmetic, exact, "native", "exact")
LOCKSTEP_WORDS(ProcessStart, executed, "forked", "executed")
LOCKSTEP_WORDS(Perturbation, epsilon, "none", "row_order", "random_draws", "epsilon")
LOCKSTEP_WORDS(OptimizerKind, adamw, "sgd", "adam", "adamw")
LOCKSTEP_WORDS(UpdatePartition, sharded, "whole", "sharded")
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
    RUN(trainer, kAny, "",
        "what each rank trains; `lockstep list scenarios` describes the trainers", Words::any, Setter::user, &trainer_names),
    RUN(data.source, kAny, "",
        "where the time series come from: `basic_motions`, a data set that ci/bootstrap fetches; `synthetic`, "
        "generated; `ts_files`, your own files"),
    RUN(data.train_file, kAny, "", "training series, a `.ts` file; only with `data.source: ts_files`", Words::path),
    RUN(data.test_file, kAny, "", "test series, a `.ts` file; only with `data.source: ts_files`", Words::path),
    RUN(data.shuffle, kAny, "", "a new order of samples in each epoch, `torch.randperm` seeded with seed + epoch"),
    RUN(data.drop_last, kAny, "",
        "leave out rows that do not fill a whole batch; `false`: fill the batch with the first rows again, as "
        "PyTorch does"),
    RUN(data.prefetch, Range{0, 64}, "steps",
        "steps whose rows a thread of the rank prepares while earlier steps are trained; 0: no thread"),
    RUN(data.series, Range{2, 1e6}, "series", "number of generated series; only with `data.source: synthetic`"),
    RUN(data.series_steps, Range{2, 1e6}, "time steps",
        "length of each generated series; only with `data.source: synthetic`"),
    RUN(data.channels, up_to(4096), "channels", "channels of the generated series; only with `data.source: synthetic`"),
    RUN(data.seed, kSeed, "", "seed of the generated series, not of the run; only with `data.source: synthetic`"),
    RUN(data.correlation, Range{0, 1, false, true}, "",
        "correlation between the pairs of one block; only with `data.source: synthetic`"),
    RUN(data.block, up_to(65536), "pairs",
        "pairs in a block: they are correlated and stay together on one rank; only with `data.source: synthetic`"),
    RUN(layout, kAny, "",
        "`VxB`: V ranks of B rows each, at most 4096 ranks of 65536 rows; `fitxB`: as many ranks as there is "
        "room for"),
    KEYED("ranks", backend, kAny, "", "`emulated`: threads of one process; `real`: one process per rank"),
    KEYED("backend", transport, kAny, "",
        "transport of the collectives of real ranks: `gloo`; `nccl`, one GPU per rank; `gloo_cuda`, Gloo on "
        "tensors in GPU memory, where ranks may share a GPU"),
    RUN(steps, kSteps, "steps", "length of a run"),
    RUN(stop_after, kStep, "steps", "stop after this many; schedules still extend to `steps`; 0: run all",
        Words::any, kPlanner),
    RUN(seed, kSeed, "", "seed of the run: initial weights, order of samples, noise", Words::any, kPlanner),
    RUN(resume_from, kAny, "",
        "name of an earlier cell of the matrix whose run this cell continues, possibly with another number of "
        "ranks; empty: the run starts at step 0"),
    RUN(resume_step, kStep, "steps",
        "the first step that the continued run trains itself; it starts from the other run's state before that "
        "step"),
    RUN(rows, kAny, "",
        "how a step's rows are partitioned among the ranks: `equal`; `unequal`; `one_empty`, no rows for the "
        "last rank"),
    RUN(accumulation, up_to(65536), "micro-steps",
        "gradient accumulation: a rank takes its rows of a step in this many micro-steps; in-batch candidates "
        "are those of the micro-step"),
    RUN(precision, kAny, "",
        "`float32`, `float64`: precision of parameters, energies and gradients; `bfloat16`: model and energies, "
        "with weights cast at each step, while weights, optimizer, reduction, loss and evaluation stay float32"),
    RUN(arithmetic, kAny, "",
        "`native`: as PyTorch computes; `exact`: each row by itself and sums over rows without rounding, so that "
        "no layout changes a bit. Exact arithmetic is several times slower and takes neither `norm` nor "
        "certificates"),
    RUN(oracle_world, from(0), "ranks",
        "one process computes, by the loss's plain reference, what this many ranks should",
        Words::any, kPlanner),
    RUN(rank_seed, kAny, "",
        "random draws: `keyed` by sample; `plus_rank`, from seed + rank; `same`, one stream on all ranks"),
    RUN(perturb, kAny, "",
        "what an A/A pair differs in: `none`; `row_order`, a rank's rows within each micro-step; `random_draws`, "
        "the key of every stream; `epsilon`, each initial weight by one unit in the last place"),
    RUN(optimizer, kAny, "", "update rule, in PyTorch's arithmetic"),
    RUN(lr, kPositive, "", "learning rate before `lr_rule`, `lr_scale` and `schedule`"),
    RUN(lr_rule, kAny, "",
        "factor of the learning rate with k ranks: `none`, 1; `linear`, k; `sqrt`, √k; `adam_sqrt`, √k with 1 − "
        "beta times k and eps over √k (Malladi et al. 2022), refused with sgd and where k (1 − beta) reaches 1"),
    RUN(lr_scale, kPositive, "", "a further factor of the learning rate"),
    RUN(schedule, kAny, "", "course of the learning rate over the steps"),
    RUN(warmup_steps, kStep, "steps", "length of the linear rise from 0 to the learning rate"),
    RUN(momentum, kFraction, "", "momentum of `sgd`"),
    RUN(beta1, kFraction, "", "decay of the first moment, of `adam` and `adamw`"),
    RUN(beta2, kFraction, "", "decay of the second moment, of `adam` and `adamw`"),
    RUN(eps, Range{1e-30, 1e6}, "", "added to the root of the second moment, of `adam` and `adamw`"),
    RUN(weight_decay, kNotNegative, "", "added to the gradient (`sgd`, `adam`), or decoupled (`adamw`)"),
    RUN(clip_norm, kNotNegative, "",
        "largest norm of the whole gradient, which is clipped after the reduction; 0: no clipping"),
    RUN(update, kAny, "",
        "`whole`: every rank updates every parameter; `sharded`: gradients are reduced and scattered, each rank updates its "
        "part of the parameters and keeps the optimizer's state of that part alone, and the parts are gathered (ZeRO 2)"),
    RUN(average_decay, kFraction, "",
        "decay d of averaged weights: after each update, average = d · average + (1 − d) · parameter; 0: no average"),
    RUN(bucket_cap_bytes, from(0), "bytes", "largest bucket of the reducer; 0: PyTorch's default, 1 MiB and then 25 MiB"),
    RUN(gradient_as_bucket_view, kAny, "", "as in DistributedDataParallel: gradients are views of the reducer's buckets"),
    RUN(find_unused_parameters, kAny, "",
        "as in DistributedDataParallel: the reducer looks for parameters without a gradient at each step"),
    RUN(process_start, kAny, "",
        "how a run's processes start: `forked` from one that has loaded LibTorch; `executed`, each as a new "
        "program"),
    RUN(trace, kAny, "",
        "how much of each tensor the trace keeps: `off`, `hash`, `stats` or `full`; the run's bits do not depend "
        "on it. With `off`, equal layouts are compared by final parameters, metrics and curves"),
    RUN(snapshot_steps, kStep, "steps", "steps before which the parameters are kept whole in the trace; all below `steps`"),
    RUN(eval_every, kStep, "steps",
        "steps between evaluations, at most `steps`; 0: only at the end; `never`: not at the end either, which "
        "is the default where the question needs no metric (mechanism, certificate, detection) and "
        "there are no checkpoints"),
    RUN(forced.from, kAny, "", "run whose snapshots are loaded instead of training", Words::any, kPlanner),
    RUN(forced.steps, kStep, "steps", "steps at which gradients are computed", Words::any, kPlanner),
    RUN(forced.repeat, from(0), "", "0: it stands in the hash of every run", Words::any, kPlanner),
    RUN(forced.twin, kAny, "", "computes in float64 at the snapshots of a run in another precision", Words::any, kPlanner),
    RUN(forced.chosen_by, kAny, "", "run in float64 whose scores decide which candidates a row takes", Words::any, kPlanner),
    RUN(forced.kept_step, kAny, "", "trace of a kept step whose snapshots are loaded instead of training", Words::any,
        kPlanner),
    RUN(checkpoint.every, kStep, "steps",
        "steps between saves of everything that a run needs to resume; 0: no saves, and a signal ends the run at "
        "once"),
    RUN(checkpoint.keep, Range{2, 1e6}, "checkpoints",
        "checkpoints that are kept: the newest ones, with the best one among them"),
    RUN(checkpoint.best, kAny, "", "metric of the evaluations by which `best_model` is chosen; empty: the trainer's own"),
    RUN(checkpoint.async, kAny, "", "training continues while a thread saves a copy of the state"),
    RUN(checkpoint.sharded, kAny, "", "each rank writes a slice of parameters and moments; `false`: rank 0 writes all"),
    RUN(checkpoint.grace_s, Range{0.001, 604800}, "s",
        "time from SIGTERM or SIGUSR1 to the end of the save that the signal asks for"),
    RUN(checkpoint.required, kAny, "", "a run of which a save failed is `failed` at its end; `false`: its row says so"),
    RUN(watch.step_s, kThreshold, "s", "longest time without progress of a rank within a step; 0: `timeout_s` + 2 s"),
    RUN(watch.evaluation_s, kThreshold, "s", "the same for an evaluation; 0: `timeout_s` + 2 s"),
    RUN(watch.save_s, kThreshold, "s", "the same for a save; 0: `timeout_s` + 2 s"),
    RUN(watch.load_s, kThreshold, "s",
        "the same for everything before the first step (rendezvous, data, loading a checkpoint); 0: `timeout_s` "
        "+ 2 s"),
    RUN(watch.teardown_s, kThreshold, "s", "the same for everything after the last step; 0: `timeout_s` + 2 s"),
    RUN(watch.slow_s, kThreshold, "s",
        "the same for a rank that keeps computing, which is slow and not hung: it is reported once per threshold "
        "and ended after this time; 0: ten times (`timeout_s` + 2 s), or twenty times what the plan expects of "
        "the run if that is more"),
    RUN(watch.comm_check, kAny, "",
        "before each collective ranks compare operation, reduction, root, type, shape, step and number: calls "
        "that differ are named on every rank before any data moves. This costs a small all-gather per collective"),
    RUN(watch.nan_guard, kAny, "",
        "what happens if a gradient is not finite: `off`, nothing; `stop`, the run ends; `skip`, no rank takes "
        "the step's update. Rank, tensor and element are named alike on all ranks"),
    RUN(mutant.name, kAny, "", "planted fault that tests the detectors; `lockstep list mutants` describes them",
                               Words::any, Setter::user, &mutant_names),
    RUN(mutant.step, kStep, "steps", "first step at which the fault acts; the only one if its description says alone"),
    RUN(mutant.rank, Range{-1, 4095}, "", "rank that the fault acts on; -1: every rank"),
    RUN(mutant.tensor, kAny, "",
        "parameter that the fault acts on, or for a fault that scales gradients the beginning of the parameters' "
        "names; empty: every parameter, or the trainer's usual one for a fault that acts on a single parameter"),
    RUN(mutant.bit, Range{0, 31}, "", "for a fault that flips a bit: which bit of the first element, 0 the lowest"),
    RUN(mutant.factor, Range{-1e30, 1e30}, "", "factor of `grad_scale`"),
    RUN(second_mutant.name, kAny, "",
        "second planted fault, which acts on what the first one has left", Words::any, Setter::user, &mutant_names),
    RUN(second_mutant.step, kStep, "steps",
        "first step at which the fault acts; the only one if its description says alone"),
    RUN(second_mutant.rank, Range{-1, 4095}, "", "rank that the fault acts on; -1: every rank"),
    RUN(second_mutant.tensor, kAny, "", "parameter that the fault acts on, as in `mutant.tensor`"),
    RUN(second_mutant.bit, Range{0, 31}, "", "for a fault that flips a bit: which bit of the first element, 0 the lowest"),
    RUN(second_mutant.factor, Range{-1e30, 1e30}, "", "factor of `grad_scale`"),
    RUN(timeout_s, Range{0.001, 604800}, "s",
        "longest wait of one collective, and longest time without a finished step"),
    RUN(control_guard, kAny, "",
        "before each step ranks compare what controls it: the step, whether it is the last, the rate, sampler "
        "and random offsets, the trainer's own values and a hash of the parameters. A rank that differs is named "
        "on every rank before a collective hangs, and the run fails"),
};
#undef RUN
#undef KEYED

/// Fields of one trainer's runs, and where each key stands among them.
struct FieldIndex {
  std::vector<const RunField*> fields, by_key;

  explicit FieldIndex(const TrainerSpec* trainer, const std::map<std::string, RunField, std::less<>>& open = {}) {
    for (const RunField& field : kCoreFields) fields.push_back(&field);
    if (trainer != nullptr && trainer->fields != nullptr) {
      for (const RunField& field : trainer->fields()) fields.push_back(&field);
    }
    for (const auto& [key, field] : open) fields.push_back(&field);
    by_key = fields;
    std::ranges::sort(by_key, {}, key_of);
  }
  static std::string_view key_of(const RunField* field) { return field->spec.key; }
  const RunField* find(std::string_view key) const {
    const auto at = std::ranges::lower_bound(by_key, key, {}, key_of);
    return at != by_key.end() && (*at)->spec.key == key ? *at : nullptr;
  }
};

/// All trainers' fields. A key of an open group is added when it is looked for; an index that somebody has seen stays as it is.
class FieldIndices {
 public:
  FieldIndices() {
    for (const TrainerSpec* spec : trainer_specs()) newest_[spec] = &indices_.emplace_back(spec);
  }
  const FieldIndex& of(const TrainerSpec& trainer) {
    const std::lock_guard lock(mutex_);
    return *newest_.at(&trainer);
  }
  const RunField* open(const TrainerSpec& trainer, std::string_view key) {
    const auto group = std::ranges::find_if(trainer.open_groups, [key](const OpenGroup& each) {
      return key.starts_with(each.prefix) && is_open_name(key.substr(each.prefix.size()));
    });
    if (group == trainer.open_groups.end()) return nullptr;
    const std::lock_guard lock(mutex_);
    auto& known = open_[&trainer];
    const auto [at, is_new] = known.try_emplace(std::string(key));
    if (is_new) {
      at->second = {{.key = at->first, .range = kAny, .unit = "", .help = group->help}, nullptr, group->value};
      newest_[&trainer] = &indices_.emplace_back(&trainer, known);
    }
    return &at->second;
  }

 private:
  std::mutex mutex_;
  std::map<const TrainerSpec*, std::map<std::string, RunField, std::less<>>> open_;
  std::deque<FieldIndex> indices_;
  std::map<const TrainerSpec*, const FieldIndex*> newest_;
};

FieldIndices& indices() {
  static FieldIndices all;
  return all;
}

const FieldIndex& index_of(const TrainerSpec& trainer) { return indices().of(trainer); }

}  // namespace

std::span<const RunField> core_fields() { return kCoreFields; }

const RunField* find_core_field(std::string_view key) {
  static const FieldIndex index(nullptr);
  return index.find(key);
}

std::span<const RunField* const> fields_of(const TrainerSpec& trainer) { return index_of(trainer).fields; }

const RunField* find_field(const TrainerSpec& trainer, std::string_view key) {
  const RunField* known = index_of(trainer).find(key);
  return known != nullptr ? known : indices().open(trainer, key);
}

bool is_open_name(std::string_view name) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 && std::ranges::all_of(name, fits);
}

const TrainerSpec* owner_of_key(std::string_view key) {
  for (const TrainerSpec* spec : trainer_specs()) {
    const auto own = spec->fields();
    if (std::ranges::any_of(own, [key](const RunField& field) { return field.spec.key == key; })) return spec;
    if (std::ranges::any_of(spec->open_groups, [key](const OpenGroup& group) { return key.starts_with(group.prefix); })) return spec;
  }
  return nullptr;
}

}  // namespace lockstep
