#include "harness/judge/evidence/run_evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <stdexcept>

#include "harness/base/numbers.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/checks.h"

namespace lockstep {
namespace {

struct RankFile {
  RankResult result;
  std::optional<Failure> failure;
};

Failure failure_of(const PlannedRun& run, FailureKind kind, int rank, std::string message) {
  Failure failure;
  failure.run = run.id;
  failure.kind = kind;
  failure.rank = rank;
  failure.message = std::move(message);
  return failure;
}

RankFile read_rank(const PlannedRun& run, const std::string& run_dir, int rank,
                   const RankResultReader& read) {
  RankFile file;
  const std::string path = fmt::format("{}/rank-{}.result.json", run_dir, rank);
  const auto fails = [&](FailureKind kind, std::string message) {
    file.failure = failure_of(run, kind, rank, std::move(message));
  };
  try {
    file.result = read(path);
  } catch (const std::runtime_error& error) {
    if (std::filesystem::exists(path)) fails(FailureKind::unreadable, error.what());
    else fails(FailureKind::lost, fmt::format("rank {} left no result: {}", rank, path));
    return file;
  }
  const RankResult& result = file.result;
  const int world = run.config.layout.world_size;
  if (result.rank != rank || result.world_size != world) {
    fails(FailureKind::unreadable, fmt::format("{} is of rank {} of {}, where rank {} of {} was expected", path,
                                               result.rank, result.world_size, rank, world));
  } else if (!result.config_hash.empty() && !run.hash.empty() && result.config_hash != run.hash) {
    fails(FailureKind::unreadable, fmt::format("{} is of another run: its config hash is {}, where {} was expected", path,
                                               result.config_hash, run.hash));
  } else if (result.status == "failed" || result.status == "interrupted") {
    fails(result.status == "failed" ? FailureKind::threw : FailureKind::interrupted, result.error);
  } else if (result.status != "finished") {
    fails(FailureKind::unreadable, fmt::format("{}: unknown status \"{}\"", path, result.status));
  }
  if (file.failure) {
    file.failure->step = result.steps_done;
    file.failure->operation = result.phase;
  }
  return file;
}

/// A rank without a result is the likelier cause: the others throw because it went. Then the one that ended
/// first.
std::optional<Failure> first_failure(const std::vector<RankFile>& files) {
  const Failure* first = nullptr;
  auto weight = [](const Failure& f) {
    return std::tuple(f.kind != FailureKind::lost, f.kind == FailureKind::interrupted, f.step, f.rank);
  };
  for (const RankFile& file : files) {
    if (file.failure && (!first || weight(*file.failure) < weight(*first))) first = &*file.failure;
  }
  return first ? std::optional(*first) : std::nullopt;
}

/// Mean over ranks; throws std::runtime_error naming the rank whose steps differ from rank 0's.
Series mean_over_ranks(const std::vector<RankFile>& files, const std::string& name) {
  Series mean = files.front().result.curves.at(name);
  for (std::size_t rank = 1; rank < files.size(); ++rank) {
    const auto& curves = files[rank].result.curves;
    const auto found = curves.find(name);
    if (found == curves.end() || found->second.steps != mean.steps) {
      throw std::runtime_error(
          fmt::format("rank {}: its curve {} does not have the steps of rank 0", rank, name));
    }
    for (std::size_t i = 0; i < mean.values.size(); ++i) mean.values[i] += found->second.values[i];
  }
  for (double& value : mean.values) value /= static_cast<double>(files.size());
  return mean;
}

/// Must every value of this curve be finite? Energies and the like may have no value (no negatives in a batch
/// of one row), and a metric that does not decide is only left out.
bool must_be_finite(std::string_view curve, std::string_view primary_metric) {
  if (curve.starts_with("loss") || curve == primary_metric) return true;
  return primary_metric.starts_with(kAreaPrefix) && curve == primary_metric.substr(kAreaPrefix.size());
}

/// Names the first value that is not finite among what is judged.
std::optional<Failure> find_nonfinite(const PlannedRun& run, const std::vector<RankFile>& files,
                                      std::string_view primary_metric) {
  std::optional<Failure> first;
  for (std::size_t rank = 0; rank < files.size(); ++rank) {
    for (const auto& [name, series] : files[rank].result.curves) {
      if (!must_be_finite(name, primary_metric)) continue;
      for (std::size_t i = 0; i < series.values.size(); ++i) {
        if (std::isfinite(series.values[i]) || (first && first->step <= series.steps[i])) continue;
        first = failure_of(run, FailureKind::nonfinite, static_cast<int>(rank),
                           fmt::format("{} is {} on rank {} at step {}, seed {}", name, series.values[i],
                                       rank, series.steps[i], run.config.seed));
        first->step = series.steps[i];
        break;
      }
    }
  }
  if (first) return first;
  const auto& metrics = files.front().result.metrics;
  const auto primary = metrics.find(std::string(primary_metric));
  if (primary == metrics.end() || std::isfinite(primary->second)) return std::nullopt;
  first = failure_of(run, FailureKind::nonfinite, 0,
                     fmt::format("{} is {} at the end of the run, seed {}", primary_metric, primary->second,
                                 run.config.seed));
  first->step = steps_to_run(run.config);
  return first;
}

/// What a run's traces hold first that is not finite.
struct NotFinite {
  int64_t step = 0;
  const Record* record = nullptr;
  std::vector<int> ranks;  ///< that hold it there
};

/// The first in the step, or nothing. Scores that are not finite may be meant so (of candidates that are masked): alone they do not
/// count.
std::optional<NotFinite> not_finite_in(const StepOfRun& step) {
  const auto is_wrong = [](const Record& record) {
    if (record.is_scalar) return record.phase == Phase::loss && record.name == "loss" && !std::isfinite(record.value);
    const bool computed = record.phase == Phase::scores || record.phase == Phase::local_gradients ||
                          record.phase == Phase::reduced_gradients || record.phase == Phase::parameters;
    return computed && record.has_stats && record.stats.nonfinite > 0;
  };
  NotFinite first{step.step, nullptr, {}};
  bool only_scores = true;
  for (const StepRecords& rank : step.ranks) {
    for (const Record& record : rank.records) {
      if (!is_wrong(record)) continue;
      only_scores = only_scores && record.phase == Phase::scores;
      if (first.record == nullptr || place_of(record.phase) < place_of(first.record->phase)) first.record = &record;
    }
  }
  if (first.record == nullptr || only_scores) return std::nullopt;
  const auto is_it = [&](const Record& record) {
    return is_wrong(record) && record.phase == first.record->phase && record.name == first.record->name;
  };
  const auto holds = [&](std::size_t rank) { return std::ranges::any_of(step.ranks[rank].records, is_it); };
  first.ranks = ranks_where<int>(step.ranks.size(), holds);
  return first;
}

/// A loss that is NaN comes after what made it: the place is that of the first value in the traces that is not finite.
void place_by_traces(const std::string& run_dir, Failure& failure) {
  try {
    RunReader run(run_dir);
    while (const auto step = run.next()) {
      if (step->step > failure.step) return;
      const auto found = not_finite_in(*step);
      if (!found) continue;
      const bool all = found->ranks.size() > 1 && found->ranks.size() == step->ranks.size();
      failure.message = fmt::format("{}, {}: not finite on {} at step {}; {}", name_of(found->record->phase), found->record->name,
                                    all ? "all ranks" : fmt::format("rank {}", fmt::join(found->ranks, ", ")), found->step,
                                    failure.message);
      failure.rank = found->ranks.size() == 1 ? found->ranks.front() : -1;
      failure.step = found->step;
      return;
    }
  } catch (const TraceError&) {
    // Without traces the curves are all that is known.
  }
}

double mean_of_last(const Series& series) {
  const std::size_t count = std::min(series.values.size(), kTrainMetricSteps);
  double sum = 0;
  for (std::size_t i = series.values.size() - count; i < series.values.size(); ++i) sum += series.values[i];
  return sum / static_cast<double>(count);
}

void take_curves(const std::vector<RankFile>& files, const TrainerSpec& trainer, RunEvidence& evidence) {
  for (const RankFile& file : files) evidence.seconds = std::max(evidence.seconds, file.result.train_seconds);
  evidence.metrics = files.front().result.metrics;
  evidence.curves = files.front().result.curves;
  for (const MetricSpec& metric : trainer.metrics()) {
    if (metric.train_words.empty()) continue;
    const std::string curve(metric.name);
    const auto found = evidence.curves.find(curve);
    if (found == evidence.curves.end() || found->second.values.empty()) continue;
    found->second = mean_over_ranks(files, curve);
    evidence.metrics.emplace(std::string(kTrainPrefix) + curve, mean_of_last(found->second));
  }
  for (const auto& [name, series] : evidence.curves) {
    if (!has_area(name) || series.steps.size() < 2 || series.steps.front() == series.steps.back()) continue;
    evidence.metrics.emplace(std::string(kAreaPrefix) + name, area_under(series.steps, series.values));
  }
}

/// A fault that was planted and changed nothing on any rank: what the run shows is not about it.
std::optional<Failure> find_idle_fault(const PlannedRun& run, const std::vector<RankFile>& files) {
  const auto idle = [&files](const MutantConfig& mutant, const std::string& key) {
    return mutant.name != "none" && std::ranges::none_of(files, [&key](const RankFile& file) {
             return std::ranges::find(file.result.faults_acted, key) != file.result.faults_acted.end();
           });
  };
  std::optional<Failure> found;
  for (const auto& [mutant, key] :
       {std::pair(&run.config.mutant, "mutant"), {&run.config.second_mutant, "second_mutant"}}) {
    if (!idle(*mutant, key)) continue;
    if (!found) found = failure_of(run, FailureKind::idle, -1, idle_fault_words(*mutant, key, run.config));
    found->operation += (found->operation.empty() ? "" : " ") + std::string(key);
  }
  return found;
}

}  // namespace

RunEvidence gather_run(const PlannedRun& run, const std::string& run_dir, const Failure* launched,
                       const RankResultReader& read, std::string_view primary_metric) {
  RunEvidence evidence;
  if (launched) {
    evidence.failure = *launched;
    return evidence;
  }
  std::vector<RankFile> files;
  for (int rank = 0; rank < run.config.layout.world_size; ++rank)
    files.push_back(read_rank(run, run_dir, rank, read));
  evidence.failure = first_failure(files);
  if (!evidence.failure) evidence.idle_fault = find_idle_fault(run, files);
  if (!evidence.failure) evidence.certified_by = files.front().result.certified_by;
  if (!evidence.failure) evidence.failed_saves = problem_words(files.front().result.checkpoints);
  // Forced and certifying runs are judged by their traces; only their end matters here.
  if (evidence.failure || (run.role != RunRole::reference && run.role != RunRole::cell)) return evidence;
  for (const RankFile& file : files) {
    if (file.result.steps_done >= steps_to_run(run.config)) continue;
    evidence.failure =
        failure_of(run, FailureKind::lost, file.result.rank,
                   fmt::format("rank {} says that it finished, after {} of {} steps", file.result.rank,
                               file.result.steps_done, steps_to_run(run.config)));
    evidence.failure->step = file.result.steps_done;
    return evidence;
  }
  for (const RankFile& file : files) {
    for (const auto& [name, series] : file.result.curves) {
      if (series.steps.size() == series.values.size()) continue;
      evidence.failure =
          failure_of(run, FailureKind::unreadable, file.result.rank,
                     fmt::format("rank {}: curve {} has {} steps and {} values", file.result.rank, name,
                                 series.steps.size(), series.values.size()));
      return evidence;
    }
  }
  const TrainerSpec& trainer = spec_of(run.config);
  evidence.failure =
      find_nonfinite(run, files, primary_metric.empty() ? trainer.shown_metric : primary_metric);
  if (evidence.failure) {
    place_by_traces(run_dir, *evidence.failure);
    return evidence;
  }
  try {
    take_curves(files, trainer, evidence);
  } catch (const std::runtime_error& error) {
    evidence.failure = failure_of(run, FailureKind::unreadable, -1, error.what());
  }
  return evidence;
}

constexpr std::size_t kMostPoints = 300;  // of a curve

/// Indices to keep: the ends, and of each bucket between them where the lowest and the highest value stand.
static std::vector<std::size_t> decimate(const CurveBand& band) {
  const std::size_t size = band.steps.size();
  std::vector<std::size_t> kept;
  if (size <= kMostPoints) {
    for (std::size_t i = 0; i < size; ++i) kept.push_back(i);
    return kept;
  }
  const std::size_t buckets = (kMostPoints - 2) / 2, inner = size - 2;
  kept.push_back(0);
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::size_t begin = 1 + b * inner / buckets, end = 1 + (b + 1) * inner / buckets;
    std::size_t lowest = begin, highest = begin;
    for (std::size_t i = begin; i < end; ++i) {
      if (band.low[i] < band.low[lowest]) lowest = i;
      if (band.high[i] > band.high[highest]) highest = i;
    }
    kept.push_back(std::min(lowest, highest));
    if (lowest != highest) kept.push_back(std::max(lowest, highest));
  }
  kept.push_back(size - 1);
  return kept;
}

static CurveBand thin_out(const CurveBand& band) {
  CurveBand thin;
  thin.metric = band.metric;
  for (std::size_t i : decimate(band)) {
    thin.steps.push_back(band.steps[i]);
    thin.median.push_back(band.median[i]);
    thin.low.push_back(band.low[i]);
    thin.high.push_back(band.high[i]);
  }
  return thin;
}

static CurveBand band_of(const std::vector<const Series*>& series, const std::string& metric) {
  std::map<int64_t, std::vector<double>> by_step;
  for (const Series* one : series) {
    for (std::size_t i = 0; i < one->steps.size(); ++i) by_step[one->steps[i]].push_back(one->values[i]);
  }
  CurveBand band;
  band.metric = metric;
  for (auto& [step, values] : by_step) {
    if (values.size() != series.size()) continue;
    std::ranges::sort(values);
    band.steps.push_back(step);
    band.median.push_back(median_of_sorted(values));
    band.low.push_back(values.front());
    band.high.push_back(values.back());
  }
  return band;
}

std::vector<CurveBand> curve_bands(const std::vector<const RunEvidence*>& seeds,
                                   const std::vector<std::string>& metrics) {
  std::vector<CurveBand> bands;
  for (const std::string& metric : metrics) {
    std::vector<const Series*> series;
    for (const RunEvidence* run : seeds) {
      const auto found = run->curves.find(metric);
      if (found != run->curves.end() && !found->second.steps.empty()) series.push_back(&found->second);
    }
    if (series.empty() || series.size() != seeds.size()) continue;
    CurveBand band = thin_out(band_of(series, metric));
    if (!band.steps.empty()) bands.push_back(std::move(band));
  }
  return bands;
}

double area_under(const std::vector<int64_t>& steps, const std::vector<double>& values) {
  double area = 0;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    area += static_cast<double>(steps[i] - steps[i - 1]) * (values[i] + values[i - 1]) / 2.0;
  }
  return area / static_cast<double>(steps.back() - steps.front());
}

static std::optional<OptimizerKind> kind_of(std::string_view name) {
  if (name == "sgd") return OptimizerKind::sgd;
  if (name == "adam") return OptimizerKind::adam;
  if (name == "adamw") return OptimizerKind::adamw;
  return std::nullopt;
}

static TrainingFacts of_declared(const Declared& declared, int world_size) {
  TrainingFacts facts;
  const auto kind = declared.optimizer ? kind_of(declared.optimizer->name) : std::nullopt;
  if (kind) {
    const DeclaredOptimizer& it = *declared.optimizer;
    facts.update =
        UpdateFacts{*kind, it.momentum, it.weight_decay, {it.beta1, it.beta2, it.eps}, declared.parameters};
  }
  facts.clip_norm = declared.clip_norm;
  facts.accumulation = declared.accumulation;
  facts.global_batch = declared.global_batch;
  const int64_t ranks = declared.replicas.empty() ? world_size : std::ssize(declared.replicas[0]);
  if (declared.global_batch > 0 && declared.global_batch % ranks == 0) {
    facts.rows_per_rank = declared.global_batch / ranks;
  }
  facts.declared_rate = declared.base_rate;
  if (declared.base_rate > 0) facts.other_rates = {declared.base_rate};
  facts.other_rates.push_back(1.0);
  // Half the distance of 1 from the next number.
  if (declared.precision == "bfloat16") facts.working_epsilon = 0x1p-8;
  if (declared.precision == "float16") facts.working_epsilon = 0x1p-11;
  return facts;
}

double UpdateFacts::decay_of(std::string_view parameter) const {
  const DeclaredParameters* entry = entry_of(parameters, parameter);
  return entry ? entry->weight_decay.value_or(weight_decay) : weight_decay;
}

double UpdateFacts::rate_factor_of(std::string_view parameter) const {
  const DeclaredParameters* entry = entry_of(parameters, parameter);
  return entry ? entry->rate_factor : 1;
}

bool UpdateFacts::decays() const {
  return weight_decay > 0 || std::ranges::any_of(parameters, [](const DeclaredParameters& each) {
           return each.weight_decay.value_or(0) > 0;
         });
}

TrainingFacts training_facts(const RunConfig& config) {
  TrainingFacts facts;
  facts.update = UpdateFacts{config.optimizer, config.momentum, config.weight_decay, adam_numbers(config), {}};
  facts.clip_norm = config.clip_norm;
  facts.accumulation = config.accumulation;
  facts.rows_per_rank = config.layout.rows_per_rank;
  facts.global_batch = config.layout.global_batch();
  facts.other_rates = {config.lr, 1.0, config.lr * config.lr_scale};
  // Half the distance of 1 from the next number: eight significant bits.
  if (config.precision == Precision::bfloat16) facts.working_epsilon = 0x1p-8;
  return facts;
}

TrainingFacts training_facts(const RunConfig* config, const RunReader& run) {
  if (config) return training_facts(*config);
  const Declared* declared = run.header().declared.get();
  return declared ? of_declared(*declared, run.world_size()) : TrainingFacts{};
}

std::vector<ConfigDifference> declared_differences(const Declared* reference, const Declared* cell) {
  const Declared nothing;
  const Declared &a = reference ? *reference : nothing, &b = cell ? *cell : nothing;
  std::vector<ConfigDifference> differences;
  // `none`: what stands where a header does not declare the key.
  const auto add = [&](const char* key, const auto& x, const auto& y, const auto& none) {
    const auto text = [&](const auto& value) { return value == none ? std::string(kNotDeclared) : fmt::format("{}", value); };
    if (x != y) differences.push_back({key, text(x), text(y)});
  };
  constexpr double kNone = -1;
  const auto of_optimizer = [&](const char* key, auto DeclaredOptimizer::*member, auto none) {
    add(key, a.optimizer ? (*a.optimizer).*member : none, b.optimizer ? (*b.optimizer).*member : none, none);
  };
  of_optimizer("optimizer", &DeclaredOptimizer::name, std::string());
  if (a.optimizer && b.optimizer) {
    of_optimizer("momentum", &DeclaredOptimizer::momentum, kNone);
    of_optimizer("weight_decay", &DeclaredOptimizer::weight_decay, kNone);
    of_optimizer("beta1", &DeclaredOptimizer::beta1, kNone);
    of_optimizer("beta2", &DeclaredOptimizer::beta2, kNone);
    of_optimizer("eps", &DeclaredOptimizer::eps, kNone);
  }
  add("clip_norm", a.clip_norm, b.clip_norm, 0.0);
  add("accumulation", a.accumulation, b.accumulation, int64_t{-1});
  add("base_rate", a.base_rate, b.base_rate, 0.0);
  add("average_decay", a.average_decay, b.average_decay, 0.0);
  add("global_batch", a.global_batch, b.global_batch, int64_t{0});
  add("precision", a.precision, b.precision, std::string());
  const auto reduction = [](const Declared& declared) { return declared.gradient_reduction.empty() ? std::string("mean") : declared.gradient_reduction; };
  add("gradient_reduction", reduction(a), reduction(b), std::string());
  for (const char* key : {"rate_factor", "weight_decay"}) {
    const auto text = [&, key](const Declared& declared) {
      std::string all;
      for (const DeclaredParameters& each : declared.parameters) {
        const bool rate = std::string_view(key) == "rate_factor";
        if (rate ? each.rate_factor != 1 : each.weight_decay.has_value())
          all += fmt::format("{}{}: {}", all.empty() ? "" : ", ", each.prefix, rate ? each.rate_factor : *each.weight_decay);
      }
      // Who declares the optimizer and no group of its own has one setting for all.
      return all.empty() && a.optimizer && b.optimizer ? std::string("the optimizer's") : all;
    };
    add(fmt::format("parameters.{}", key).c_str(), text(a), text(b), std::string());
  }
  return differences;
}

TrainingFacts facts_to_meet(const TrainingFacts& reference, const TrainingFacts& cell, const ConfigPair& configs) {
  TrainingFacts facts = cell;
  if (configs.both_known()) {
    constexpr std::array<std::string_view, 7> kOfTheOptimizer{"optimizer", "momentum",     "beta1",    "beta2",
                                                              "eps",       "weight_decay", "clip_norm"};
    RunConfig meant = *configs.cell;
    for (const std::string_view key : kOfTheOptimizer) {
      if (std::ranges::find(configs.declared, key) != configs.declared.end()) continue;
      const RunField& field = *find_core_field(key);
      store(field.of(meant), load(field.of(*configs.reference)));
    }
    const TrainingFacts of_meant = training_facts(meant);
    facts.update = of_meant.update;
    facts.clip_norm = of_meant.clip_norm;
    return facts;
  }
  if (reference.update && cell.update) facts.update = reference.update;
  if (reference.clip_norm > 0 && cell.clip_norm > 0) facts.clip_norm = reference.clip_norm;
  return facts;
}

}  // namespace lockstep
