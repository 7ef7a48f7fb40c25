#include "harness/plan/matrix/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan.h"
#include "harness/plan/matrix/plan_history.h"

// Values that are fine alone and not together.

namespace lockstep {
namespace {

class Checker {
 public:
  Checker(const MatrixSource& source, Problems& problems)
      : source_(source), asks_(asked_by(source.matrix)), problems_(problems) {}

  void check_cell(const Cell& cell) {
    cell_ = &cell;
    check_batch(cell);
    check_length(cell);
    for (const RunConfig* config : {&cell.config, &cell.reference}) {
      in_reference_ = config == &cell.reference;
      check_data(*config);
      check_metric(*config);
      check_blocks(*config);
      check_trainer(*config);
      check_partitioning(*config);
      check_schedule(*config);
      check_steps(*config);
      check_trace(cell, *config);
      for (auto& [key, message] : fault_problems(*config)) add(std::move(key), std::move(message));
      for (auto& [key, message] : training_problems(*config, asks_)) {
        add(std::move(key), std::move(message));
      }
    }
    in_reference_ = false;
    check_exact_pair(cell);
    check_expectation(cell);
  }

  /// Of a layout that is timed: can a run of it be partitioned its rows?
  void check_timed(const Cell& timed) {
    cell_ = &timed;
    check_data(timed.config);
    check_blocks(timed.config);
    check_trainer(timed.config);
    check_partitioning(timed.config);
  }

  void check_whole(const std::vector<Cell>& cells) {
    const auto controls = [](const Cell& cell) { return cell.power_control; };
    if (asks_.by_outcome && source_.power_controls.empty()) {
      problems_.add(source_.place_of("question"),
                    "an outcome needs power_controls: a cell that trains so differently that it must be "
                    "found to differ");
    }
    if (!asks_.by_outcome && std::any_of(cells.begin(), cells.end(), controls)) {
      problems_.add(
          source_.place_of("power_controls"),
          fmt::format("power controls are judged by their outcome; the question is {}", asks_.name));
    }
    if (!source_.matrix.timing.layouts.empty() && asks_.derives_reference()) {
      problems_.add(source_.place_of("timing.layouts"),
                    fmt::format("timed runs use the reference's config, which the question of {} derives",
                                asks_.name));
    }
    for (const Cell& cell : cells) {
      for (const auto& [key, message] : resume_problems(cells, cell)) problems_.add(source_.place_of(key), fmt::format("cell {}: {}", in_quotes(cell.name), message));
      if (asks_.by_outcome && !cell.config.resume_from.empty()) {
        problems_.add(source_.place_of("resume_from"), "a run that resumes from another has incomplete curves: the question must be mechanism");
        break;
      }
    }
    check_idle_fault(cells);
    check_forced_steps(cells);
    check_target();
    check_transports(cells);
  }

  // A transport that no real rank has would be asked for in vain, and nobody would notice.
  void check_transports(const std::vector<Cell>& cells) {
    const Matrix& matrix = source_.matrix;
    const bool prefixes = certifies_prefixes(matrix.ranks) && matrix.certify_steps > 0 && asks_.trains && matrix.replay.empty();
    const Transport* asked = nullptr;
    for (const Cell& cell : cells) {
      for (const RunConfig* config : {&cell.config, &cell.reference}) {
        if (config->transport == Transport::gloo || config->layout.world_size == 1) continue;
        if (config->backend == Backend::gloo || (prefixes && config == &cell.config && !cell.noise)) return;
        asked = &config->transport;
      }
    }
    if (asked == nullptr || !matrix.timing.layouts.empty()) return;
    problems_.add(source_.place_of("backend"),
                  fmt::format("backend {} has no effect: no run of this matrix has real ranks; use ranks: real, or ranks: auto with "
                              "certify_steps of 1 or more, or remove backend",
                              word_of(*asked)));
  }

  void check_target() {
    const Primary& primary = source_.matrix.primary;
    if (primary.target <= 0) return;
    const auto metrics = spec_of(source_.base).metrics();
    const bool followed = spec_of(source_.base).is_command() || std::ranges::any_of(metrics, [&](const MetricSpec& metric) {
      return metric.name == primary.metric && metric.when == MetricSpec::When::evaluation;
    });
    if (followed) return;
    problems_.add(
        source_.place_of("primary.target"),
        fmt::format("steps to a target come from evaluations during the run, and these do not measure {}",
                    primary.metric));
  }

  std::vector<std::string> messages() const {
    std::vector<std::string> all;
    for (const Found& found : found_) all.push_back(found.message);
    return all;
  }

  void report() {
    for (const Found& found : found_) {
      const std::string more = found.cells > 1 ? fmt::format(" and {} more", found.cells - 1) : "";
      problems_.add(found.place,
                    fmt::format("cell {}{}: {}", in_quotes(found.first), more, found.message));
    }
  }

 private:
  struct Found {
    std::string key, message, first;
    Place place;
    int cells = 1;
    const Cell* last = nullptr;
  };

  // One line for one mistake, however many cells share it.
  void add(std::string key, std::string message) {
    const auto said_of_cell = [&](const Found& found) {
      return found.key == key && found.message == message && found.last == cell_;
    };
    if (in_reference_) {
      if (std::any_of(found_.begin(), found_.end(), said_of_cell)) return;
      message = "its reference: " + message;
    }
    for (Found& found : found_) {
      if (found.key != key || found.message != message) continue;
      if (found.last != cell_) ++found.cells;
      found.last = cell_;
      return;
    }
    const Place place = place_of(key);
    found_.push_back({std::move(key), std::move(message), cell_->name, place, 1, cell_});
  }

  /// Where the cell, or its reference, was given the key; else where the matrix was; else where the cell stands.
  Place place_of(const std::string& key) const {
    const auto own = cell_->places.find(in_reference_ ? "reference." + key : key);
    if (own != cell_->places.end()) return own->second;
    if (source_.places.contains(key)) return source_.place_of(key);
    if (const auto cell = cell_->places.find(""); cell != cell_->places.end() && cell->second.column > 0) return cell->second;
    const char* const kWhole[] = {"axes", "include", "reference", "question"};
    const auto* given = std::ranges::find_if(kWhole, [this](const char* whole) { return source_.places.contains(whole); });
    return source_.place_of(given == std::end(kWhole) ? key : *given);
  }

  void check_batch(const Cell& cell) {
    const Layout& own = cell.config.layout;
    const Layout& other = cell.reference.layout;
    if (own.global_batch() == other.global_batch() || source_.matrix.allow_unequal_batch) return;
    add("layout", fmt::format("a step has {} x {} = {} rows, the reference's has {} x {} = {}; "
                              "set allow_unequal_batch: true if that is intended",
                              own.world_size, own.rows_per_rank, own.global_batch(), other.world_size,
                              other.rows_per_rank, other.global_batch()));
  }

  // Batches of different size are compared at equal samples, as they are at equal epochs.
  void check_length(const Cell& cell) {
    const RunConfig &own = cell.config, &other = cell.reference;
    const int64_t samples = own.steps * own.layout.global_batch();
    const int64_t other_samples = other.steps * other.layout.global_batch();
    const bool growing = own.layout.global_batch() != other.layout.global_batch();
    if (own.steps == other.steps || (growing && samples == other_samples)) return;
    add("steps", growing ? fmt::format("{} steps of {} rows are {} samples, the reference's {} of {} are {}; "
                                       "both must have equally many steps or equally many samples",
                                       own.steps, own.layout.global_batch(), samples, other.steps,
                                       other.layout.global_batch(), other_samples)
                         : fmt::format("{} steps against the reference's {}", own.steps, other.steps));
  }

  void check_data(const RunConfig& config) {
    const DataConfig& data = config.data;
    const bool has_files = !data.train_file.empty() || !data.test_file.empty();
    if (data.source == DataSource::ts_files) {
      if (data.train_file.empty() || data.test_file.empty()) {
        add("data.source", "source ts_files needs data.train_file and data.test_file");
      }
      return;  // What the files hold is known when they are read.
    }
    if (has_files) add("data.train_file", "data files are given, but data.source is not ts_files");
    const std::optional<SampleCounts> samples = spec_of(config).counted_samples(config);
    if (!samples) return;  // The trainer says why.
    if (std::string few = too_few_samples(config, *samples); !few.empty()) add("layout", std::move(few));
  }

  // A metric that a run does not measure would be missed when everything has been trained.
  void check_metric(const RunConfig& config) {
    if (!asks_.by_outcome) return;
    std::string why = unmeasured(source_.matrix.primary.metric, config, spec_of(config).counted_samples(config));
    if (!why.empty()) add("primary.metric", std::move(why));
  }

  void check_blocks(const RunConfig& config) {
    const DataConfig& data = config.data;
    if (data.source != DataSource::synthetic && (data.correlation > 0 || data.block > 1)) {
      add(data.block > 1 ? "data.block" : "data.correlation",
          "blocks of alike samples exist only with source synthetic");
    } else if (data.correlation > 0 && data.block < 2) {
      add("data.correlation", "correlation needs at least two samples in a block: data.block must be 2 or more");
    }
    if (config.layout.rows_per_rank % data.block != 0) {
      add("data.block", fmt::format("a rank's {} rows are not whole blocks of {} samples",
                                    config.layout.rows_per_rank, data.block));
    }
    if (data.block > 1 && config.layout.rows_per_rank / data.block % config.accumulation != 0) {
      add("accumulation", fmt::format("a rank's {} blocks do not make {} equal micro-steps",
                                      config.layout.rows_per_rank / data.block, config.accumulation));
    }
  }

  void check_trainer(const RunConfig& config) {
    const bool certificate = asks_.against_plain();
    for (auto& [key, message] : spec_of(config).problems(config, {certificate, source_.matrix.allow_no_negatives})) {
      add(std::move(key), std::move(message));
    }
    if (certificate && config.rank_seed != RankSeed::keyed) {
      add("rank_seed",
          "one process can repeat the ranks' draws only if they are keyed by sample: a certificate needs "
          "rank_seed keyed");
    }
  }

  // What exact arithmetic does not take, the cell itself may.
  void check_exact_pair(const Cell& cell) {
    const std::optional<ExactPair> pair = exact_pair_of(source_.matrix, cell);
    if (!pair) return;
    for (const RunConfig* config : {&pair->cell, &pair->reference}) {
      RunConfig native = *config;
      native.arithmetic = Arithmetic::native;
      const auto said = problems_of(native);
      for (const auto& [key, message] : problems_of(*config)) {
        const auto same = [&text = message](const auto& other) { return other.second == text; };
        if (std::none_of(said.begin(), said.end(), same)) add("certify.exact", message);
      }
    }
  }

  std::vector<std::pair<std::string, std::string>> problems_of(const RunConfig& config) const {
    std::vector<std::pair<std::string, std::string>> all = training_problems(config, asks_);
    for (auto& [key, message] :
         spec_of(config).problems(config, {asks_.against_plain(), source_.matrix.allow_no_negatives})) {
      all.emplace_back(std::move(key), std::move(message));
    }
    return all;
  }

  void check_partitioning(const RunConfig& config) {
    const Layout layout = meant_layout(config);
    if (config.rows != RowPartition::equal && layout.world_size < 2) {
      add("rows", fmt::format("rows {} needs at least 2 ranks",
                              config.rows == RowPartition::unequal ? "unequal" : "one_empty"));
    }
    if (config.accumulation == 1) return;
    if (config.rows != RowPartition::equal) {
      add("accumulation", fmt::format("accumulation {} does not divide unequal rows", config.accumulation));
    } else if (layout.rows_per_rank % config.accumulation != 0) {
      add("accumulation", fmt::format("accumulation {} does not divide the {} rows of a rank",
                                      config.accumulation, layout.rows_per_rank));
    }
  }

  void check_schedule(const RunConfig& config) {
    if (config.schedule == Schedule::warmup && config.warmup_steps == 0) {
      add("schedule", "schedule warmup needs warmup_steps");
    } else if (config.schedule == Schedule::constant && config.warmup_steps > 0) {
      add("warmup_steps", "warmup_steps has no effect with schedule constant");
    } else if (config.warmup_steps >= config.steps) {
      // `--set steps=20` shortens a run; the warm-up must be shortened with it, or nothing else would be
      // seen.
      add("warmup_steps", fmt::format("a warm-up of {} steps takes all of the {} steps",
                                      config.warmup_steps, config.steps));
    }
  }

  // Who shortens a run on the command line need not name its steps anew.
  bool is_meant(const std::string& key) const {
    return source_.places.contains(key) &&
           (!source_.set_keys.contains("steps") || source_.set_keys.contains(key));
  }

  void check_steps(const RunConfig& config) {
    if (!config.snapshot_steps.empty() && config.snapshot_steps.back() >= config.steps &&
        is_meant("snapshot_steps")) {
      add("snapshot_steps", fmt::format("snapshot_steps names step {}; a run of {} steps has steps 0 to {}",
                                        config.snapshot_steps.back(), config.steps, config.steps - 1));
    }
    if (config.eval_every.steps() > config.steps && is_meant("eval_every")) {
      add("eval_every",
          fmt::format("eval_every {} exceeds the {} steps of the run: 0 evaluates only at the end",
                      config.eval_every.steps(), config.steps));
    }
  }

  void check_forced_steps(const std::vector<Cell>& cells) {
    const std::vector<int64_t>& forced = source_.matrix.forced_steps;
    if (cells.empty() || forced.empty() || asks_.draws_cells() ||
        !is_meant("forced_steps")) {
      return;
    }
    int64_t longest = 0;
    for (const Cell& cell : cells) longest = std::max({longest, cell.config.steps, cell.reference.steps});
    if (forced.back() < longest) return;
    problems_.add(source_.place_of("forced_steps"),
                  fmt::format("forced_steps names step {}; runs of {} steps have steps 0 to {}",
                              forced.back(),
                              longest, longest - 1));
  }

  void check_trace(const Cell& cell, const RunConfig& config) {
    if (config.trace != TraceLevel::off) return;
    const bool certifies = certifies_prefixes(source_.matrix.ranks) && source_.matrix.certify_steps > 0;
    if (asks_.compares_results && cell.config.layout != cell.reference.layout) {
      add("trace",
          "trace: off keeps nothing to compare between two layouts: their final parameters differ by "
          "rounding");
    } else if (!asks_.compares_results && !asks_.by_outcome) {
      add("trace", "trace: off keeps nothing to compare");
    } else if ((!source_.matrix.forced_steps.empty() && !(asks_.compares_results && cell.paired)) ||
               certifies) {
      add("trace",
          "trace: off keeps neither snapshots nor hashes; it needs forced_steps: [] and certify_steps: 0");
    }
  }

  void check_idle_fault(const std::vector<Cell>& cells) {
    if (cells.empty()) return;
    for (const Setting& setting : source_.faults) {
      const std::string_view key = setting.field->spec.key;
      const std::string_view fault = key.substr(0, key.find('.'));
      const auto acts = [fault](const Cell& cell) {
        const auto named = [fault](const RunConfig& config) {
          return (fault == "mutant" ? config.mutant : config.second_mutant).name != "none";
        };
        return named(cell.config) || named(cell.reference);
      };
      if (key.ends_with(".name") || std::any_of(cells.begin(), cells.end(), acts)) continue;
      problems_.add(setting.place, fmt::format("{} has no effect: {}.name is none", key, fault));
    }
  }

  void check_expectation(const Cell& cell) {
    const bool outcome = asks_.by_outcome;
    const auto answers = [outcome](VerdictKind kind) {
      if (kind == VerdictKind::divergent || kind == VerdictKind::failed || kind == VerdictKind::inconclusive) return true;
      return (kind == VerdictKind::equivalent) == outcome;
    };
    for (const VerdictKind kind : cell.expected) {
      if (!answers(kind)) {
        add("expect", fmt::format("{} is not a verdict of the question of {}", name_of(kind), asks_.name));
      }
    }
    const auto begin = cell.expected.begin(), end = cell.expected.end();
    if (outcome && cell.power_control && std::find(begin, end, VerdictKind::divergent) == end) {
      add("expect", "a power control must be expected to be divergent");
    }
  }

  const MatrixSource& source_;
  const QuestionPlan& asks_;
  Problems& problems_;
  const Cell* cell_ = nullptr;
  bool in_reference_ = false;
  std::vector<Found> found_;
};

}  // namespace

std::vector<std::string> cell_problems(const MatrixSource& source, const Cell& cell) {
  Problems none("");
  Checker checker(source, none);
  checker.check_cell(cell);
  return checker.messages();
}

void check_matrix(const MatrixSource& source, const std::vector<Cell>& cells, Problems& problems) {
  Checker checker(source, problems);
  for (const Cell& cell : cells) checker.check_cell(cell);
  std::vector<Cell> timed;
  if (!cells.empty()) {
    Matrix matrix = source.matrix;
    matrix.cells = {cells.front()};
    for (const Layout& layout : matrix.timing.layouts) {
      timed.emplace_back();
      timed.back().name = timing_name(layout);
      timed.back().config = timing_config(matrix, layout);
    }
  }
  for (const Cell& cell : timed) checker.check_timed(cell);
  checker.check_whole(cells);
  checker.report();
}

namespace {

using Found = std::vector<std::pair<std::string, std::string>>;

/// "action_encoder" of "action_encoder.in.weight".
std::string group_of(const std::string& parameter) { return parameter.substr(0, parameter.find('.')); }

/// Names of parameters; with `groups` also what stands before each dot, by which a group is named.
std::vector<std::string> names_of(const std::vector<ModelParameter>& parameters, bool groups) {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const ModelParameter& parameter : parameters) {
    const std::string& name = parameter.name;
    std::size_t dot = groups ? name.find('.') : std::string::npos;
    for (; dot != std::string::npos; dot = name.find('.', dot + 1)) add(name.substr(0, dot));
    add(name);
  }
  return names;
}

/// "; did you mean X?", or where nothing is near the groups that there are.
std::string suggestion(const std::string& word, const std::vector<ModelParameter>& parameters, bool groups) {
  const std::vector<std::string> names = names_of(parameters, groups);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string_view near = nearest(word, views);
  if (!near.empty()) return fmt::format("; did you mean {}?", near);
  std::vector<std::string> beginnings;
  for (const ModelParameter& parameter : parameters) {
    if (beginnings.empty() || beginnings.back() != group_of(parameter.name)) {
      beginnings.push_back(group_of(parameter.name));
    }
  }
  return fmt::format("; names begin with {}", fmt::join(beginnings, ", "));
}

/// A bug of another trainer's parts would find none of them.
void check_trainer(const RunConfig& config, const MutantConfig& mutant, const std::string& key,
                   Found& found) {
  const MutantEntry* entry = find_mutant(mutant.name);
  if (entry == nullptr || entry->trainer.empty() || entry->trainer == config.trainer) return;
  found.emplace_back(
      key + ".name",
      fmt::format("{0}.name {1} is a fault of trainer {2}, and trainer is {3}: set trainer to {2}, or choose a "
                  "mutant that `lockstep list mutants` shows without a trainer, or with {3}",
                  key, mutant.name, entry->trainer, config.trainer));
}

void check_tensor(const RunConfig& config, const MutantConfig& mutant, const std::string& key, Found& found) {
  const MutantEntry* entry = find_mutant(mutant.name);
  if (mutant.tensor.empty() || entry == nullptr) return;
  if (entry->tensor == MutantTensor::none) {
    found.emplace_back(
        key + ".tensor",
        fmt::format("{}.tensor has no effect: {} does not act on a chosen parameter", key, mutant.name));
    return;
  }
  const bool groups = entry->tensor == MutantTensor::group;
  // How many channels the data have changes the shapes, not the names.
  const std::vector<ModelParameter> parameters = spec_of(config).parameters(config, config.data.channels);
  const auto meant = [&](const ModelParameter& parameter) {
    return groups ? parameter.name.starts_with(mutant.tensor) : parameter.name == mutant.tensor;
  };
  if (std::any_of(parameters.begin(), parameters.end(), meant)) return;
  found.emplace_back(key + ".tensor", fmt::format("{}.tensor {} is no parameter{} of the model{}", key,
                                                  in_quotes(mutant.tensor), groups ? " or group" : "",
                                                  suggestion(mutant.tensor, parameters, groups)));
}

void check_fault(const RunConfig& config, const MutantConfig& mutant, const std::string& key, Found& found) {
  if (mutant.name == "none") return;
  check_trainer(config, mutant, key, found);
  const int world = config.layout.world_size;
  if (mutant.rank >= world) {
    found.emplace_back(key + ".rank",
                       fmt::format("{}.rank is {}; {} ranks are numbered 0 to {}",
                                   key, mutant.rank, world, world - 1));
  }
  const int64_t end = config.stop_after > 0 ? std::min(config.stop_after, config.steps) : config.steps;
  if (mutant.step >= end) {
    found.emplace_back(key + ".step",
                       fmt::format("{}.step {} is never reached in {} steps", key, mutant.step, end));
  }
  if (mutant.name == "grad_scale" && mutant.factor == 1.0) {
    found.emplace_back(key + ".factor", fmt::format("grad_scale with {}.factor 1 has no effect", key));
  }
  check_tensor(config, mutant, key, found);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> fault_problems(const RunConfig& config) {
  Found found;
  check_fault(config, config.mutant, "mutant", found);
  check_fault(config, config.second_mutant, "second_mutant", found);
  return found;
}

std::string idle_fault_words(const MutantConfig& mutant, const std::string& key, const RunConfig& config) {
  std::string where = fmt::format("from step {} on {}", mutant.step,
                                  mutant.rank < 0 ? "all ranks" : fmt::format("rank {}", mutant.rank));
  if (!mutant.tensor.empty()) where += ", " + mutant.tensor;
  std::string text = fmt::format(
      "the planted fault {} ({}) never acted: in {} steps it changed nothing on any of {} ranks, so the "
      "comparison says nothing about it. Choose a step, a rank and a parameter that the run reaches",
      mutant.name, where, steps_to_run(config), config.layout.world_size);
  const MutantEntry* entry = find_mutant(mutant.name);
  if (entry != nullptr && !entry->settings.empty()) {
    text += fmt::format("; {} shows with {}", key, entry->settings);
  }
  return text;
}

namespace {

void check_rule(const RunConfig& config, Found& found) {
  if (config.lr_rule != LrRule::adam_sqrt) return;
  if (config.optimizer == OptimizerKind::sgd) {
    found.emplace_back("lr_rule", "lr_rule adam_sqrt scales Adam's betas and eps: optimizer sgd has none");
  } else if (!fits_adam_sqrt(config)) {
    found.emplace_back(
        "lr_rule", fmt::format("lr_rule adam_sqrt with {} ranks multiplies 1 - beta by {}, which leaves no "
                               "memory: beta1 {} and beta2 {} must exceed {:.4g}",
                               config.layout.world_size, config.layout.world_size, config.beta1, config.beta2,
                               1 - 1.0 / config.layout.world_size));
  }
}

void check_precision(const RunConfig& config, const QuestionPlan& asks, Found& found) {
  if (config.precision != Precision::bfloat16) return;
  if (asks.against_plain() || config.oracle_world > 0) {
    found.emplace_back("precision",
                       "a certificate compares with a float64 reference: bfloat16 rounds a thousand times "
                       "more coarsely than the differences it must detect");
  }
}

void check_row_order(const RunConfig& config, Found& found) {
  if (config.layout.rows_per_rank / config.accumulation < 2) {
    found.emplace_back("perturb", "perturb row_order: a single row per rank and micro-step has no other order");
  } else if (config.rank_seed != RankSeed::keyed) {
    found.emplace_back(
        "perturb",
        "perturb row_order changes only the order if draws are keyed by sample: it needs "
        "rank_seed keyed");
  }
}

void check_perturbation(const RunConfig& config, const QuestionPlan& asks, Found& found) {
  if (config.perturb == Perturbation::none) return;
  if (asks.against_plain() || config.oracle_world > 0) {
    found.emplace_back("perturb", "a certificate computes both sides from one state: remove perturb");
  } else if (config.perturb == Perturbation::row_order) {
    check_row_order(config, found);
  }
}

void check_arithmetic(const RunConfig& config, const QuestionPlan& asks, Found& found) {
  if (config.arithmetic != Arithmetic::exact) return;
  if (asks.against_plain() || config.oracle_world > 0) {
    found.emplace_back("arithmetic",
                       "a certificate's reference computes all rows at once: arithmetic: exact is not possible");
  } else if (config.forced.on()) {
    found.emplace_back("arithmetic", "forced steps compare whole shards of rows: arithmetic: exact is not possible");
  }
}

/// Weights alone: gradients and the optimizer's moments are as large again, each.
void check_size(const RunConfig& config, Found& found) {
  constexpr double kMost = 268435456;  // 2^28: 1 GiB in float32
  // Channels of other data are known when they are read; theirs are few beside those that a config can ask
  // for.
  const int64_t channels = config.data.source == DataSource::synthetic ? config.data.channels : 1;
  double elements = 0;
  for (const ModelParameter& parameter : spec_of(config).parameters(config, channels)) {
    double product = 1;
    for (const int64_t size : parameter.shape) product *= static_cast<double>(size);
    elements += product;
  }
  if (elements > kMost) {
    found.emplace_back("model.hidden", fmt::format("a model of {:.3g} weights: at most 2^28; they follow from model.* and data.*",
                                                   elements));
  }
}

void check_watch(const RunConfig& config, Found& found) {
  if (config.watch.nan_guard == NanGuard::skip && config.arithmetic == Arithmetic::exact) {
    found.emplace_back("watch.nan_guard", "exact arithmetic ends a run at the first row that is not finite: use stop");
  }
}

void check_sharded(const RunConfig& config, Found& found) {
  if (config.update != UpdatePartition::sharded) return;
  if (config.arithmetic == Arithmetic::exact) {
    found.emplace_back("update", "exact arithmetic sums every gradient on every rank: update sharded needs arithmetic native");
  } else if (config.checkpoint.on()) {
    found.emplace_back("update", "checkpoints are made of a whole optimizer state: update sharded cannot have checkpoint.every");
  }
}

void check_checkpoint(const RunConfig& config, Found& found) {
  if (!config.checkpoint.on()) {
    if (config.checkpoint.required) found.emplace_back("checkpoint.required", "checkpoint.required without checkpoint.every: the run saves nothing");
    return;
  }
  if (config.mutant.name != "none" || config.second_mutant.name != "none") {
    found.emplace_back("checkpoint.every",
                       "checkpoints do not contain the state of a planted fault: a cell with a mutant cannot have checkpoint.every");
  }
  const std::string& best = config.checkpoint.best;
  const auto metrics = spec_of(config).metrics();
  const bool evaluated = std::ranges::any_of(metrics, [&](const MetricSpec& metric) {
    return metric.name == best && metric.when == MetricSpec::When::evaluation && metric.higher_is_better;
  });
  if (!best.empty() && !evaluated) {
    found.emplace_back("checkpoint.best",
                       fmt::format("checkpoint.best {} is no metric of evaluations of which it is known whether higher "
                                   "is better; the trainer's own is {}",
                                   best, spec_of(config).shown_metric));
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> training_problems(const RunConfig& config,
                                                                   const QuestionPlan& asks) {
  Found found;
  check_rule(config, found);
  check_size(config, found);
  check_precision(config, asks, found);
  check_arithmetic(config, asks, found);
  check_perturbation(config, asks, found);
  check_checkpoint(config, found);
  check_watch(config, found);
  check_sharded(config, found);
  return found;
}

namespace {

constexpr std::string_view kExternal = "external:";

std::vector<std::string_view> first_words() {
  std::vector<std::string_view> words = {"local", "slurm"};
  for (const NamedLauncher& launcher : named_launchers()) words.push_back(launcher.name);
  words.push_back(kExternal);
  return words;
}

std::string_view first_word(std::string_view text) { return text.substr(0, text.find_first_of(" \t")); }

}  // namespace

const std::vector<NamedLauncher>& named_launchers() {
  static const std::vector<NamedLauncher> launchers = {
      {"torchrun", "torchrun --standalone --nproc-per-node {ranks} {options} --no-python {rank_program} run {run} --prepared",
       "PyTorch contains it: python3 -m pip install torch, with its bin folder in PATH"},
      {"openmpi", "mpirun.openmpi --oversubscribe --bind-to none -np {ranks} {options} {rank_program} run {run} --prepared",
       "apt-get install openmpi-bin"},
      {"mpich", "mpirun.mpich -np {ranks} {options} {rank_program} run {run} --prepared", "apt-get install mpich"},
      {"srun", "srun --ntasks {ranks} --input none --mpi none --overlap --unbuffered {options} {rank_program} run {run} --prepared",
       "apt-get install slurm-client, on a machine of a Slurm cluster"},
  };
  return launchers;
}

std::string launcher_problem(std::string_view text, std::string& suggestion) {
  std::vector<std::string> words;
  if (!split_words(text, words)) return fmt::format("launcher '{}': a quote is not closed", text);
  if (text.starts_with(kExternal)) {
    for (const std::string_view needed : {"{rank_program}", "{run}"}) {
      if (text.find(needed) == std::string_view::npos)
        return fmt::format("launcher '{}': the command lacks {}; it needs {{ranks}}, {{rank_program}} run {{run}}", text, needed);
    }
    return "";
  }
  const std::vector<std::string_view> known = first_words();
  const std::string_view name = first_word(text);
  if (name == "local" && words.size() > 1) return fmt::format("launcher '{}': local takes no options", text);
  if (name != kExternal && std::find(known.begin(), known.end(), name) != known.end()) return "";
  suggestion = nearest(name, known);
  return fmt::format("launcher '{}' is unknown; known are {}COMMAND", name, fmt::join(known, ", "));
}

LauncherChoice launcher_choice(std::string_view text) {
  LauncherChoice choice;
  choice.name = std::string(first_word(text));
  if (text.starts_with(kExternal)) {
    choice.kind = LauncherChoice::Kind::external;
    choice.name = "external";
    split_words(text.substr(kExternal.size()), choice.words);
    return choice;
  }
  std::vector<std::string> options;
  split_words(text.substr(choice.name.size()), options);
  if (choice.name == "slurm") {
    choice.kind = LauncherChoice::Kind::slurm;
    choice.words = std::move(options);
    return choice;
  }
  const auto& launchers = named_launchers();
  const auto found = std::find_if(launchers.begin(), launchers.end(), [&](const NamedLauncher& s) { return s.name == choice.name; });
  if (found == launchers.end()) return choice;
  choice.kind = LauncherChoice::Kind::external;
  std::vector<std::string> words;
  split_words(found->command, words);
  for (std::string& word : words) {
    if (word == "{options}")
      choice.words.insert(choice.words.end(), options.begin(), options.end());
    else
      choice.words.push_back(std::move(word));
  }
  return choice;
}

void take_launcher(MatrixSource& source, const std::string& chosen, Problems& problems) {
  Place place = source.place_of("launcher");
  if (!chosen.empty()) {
    place = {problems.add_source("--launcher " + chosen)};
    source.matrix.launcher = chosen;
  }
  std::string suggestion;
  if (const std::string problem = launcher_problem(source.matrix.launcher, suggestion); !problem.empty())
    problems.add(place, problem, suggestion);
}

bool split_words(std::string_view text, std::vector<std::string>& words) {
  std::string word;
  bool begun = false;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word.push_back(c);
    } else if (c == '\'' || c == '"') {
      quote = c;
      begun = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (begun) words.push_back(std::move(word));
      word.clear();
      begun = false;
    } else {
      word.push_back(c);
      begun = true;
    }
  }
  if (begun) words.push_back(std::move(word));
  return quote == 0;
}

}  // namespace lockstep
