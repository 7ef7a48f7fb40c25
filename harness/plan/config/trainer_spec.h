#pragma once

#include <any>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"

// What a trainer is to programs that have no LibTorch: its keys, checks, data, parameters and metrics. scenarios/NAME/spec.cpp
// makes one, and a line in scenarios/specs.cpp makes it known; harness/trainers/core/task.h is the other half, which needs LibTorch.

namespace lockstep {

/// A parameter of a trainer's model, known without LibTorch; a test holds the list equal to the model.
struct ModelParameter {
  std::string name;            ///< "group.tensor"
  std::vector<int64_t> shape;  ///< sizes
  /// The loss does not depend on it: its gradient is 0 but for rounding.
  bool without_gradient = false;
  /// Its first element belongs to a row's first time step, which may be padding on every row of a rank.
  bool first_may_be_padding = false;
  int64_t elements() const;
};

/// Samples in each part of the data.
struct SampleCounts {
  int64_t train = 0, holdout = 0, test = 0;
};

/// What a planner asks of the data.
struct DataFacts {
  SampleCounts samples;
  std::string hash;  ///< hex, of the very bytes that were read, or of the generator's parameters
};

/// Something that a trainer measures, by name.
struct MetricSpec {
  /// A value of each step; a metric of each evaluation; a metric of the last one alone. All are curves.
  enum class When { step, evaluation, end };
  std::string_view name;
  std::string_view help;
  When when = When::step;
  std::string_view family = {};  ///< in words, "accuracy"; empty: the name
  std::string_view way = {};     ///< of how many candidates or classes, "24"; empty: of no number
  std::string_view qualifier = {};  ///< which of its family, "temperature-fitted"; empty: the plain one
  std::optional<bool> higher_is_better = std::nullopt;
  std::optional<double> chance = std::nullopt;  ///< what guessing gives, in the metric's units, on any data
  /// Where chance depends on the data: what guessing gives, from the value of `chance_metric`, which the run
  /// measures at its end ("classes").
  double (*chance_by)(double value) = nullptr;
  std::string_view chance_metric = {};
  bool shown = false;                           ///< its curve stands in the report
  bool has_area = false;                        ///< the judge takes the area under its curve, as auc_NAME
  /// "training loss": the judge takes the mean over the last steps as train_NAME, and reports call it this;
  /// empty: it takes none.
  std::string_view train_words = {};
  int test_samples = 0;                         ///< fewest that it is measured on
  int holdout_samples = 0;                      ///< fewest held-out ones that it is fitted on
  /// Why a run of that config does not measure it, "... is measured where ..."; null, or empty: it does.
  std::string (*unmeasured)(const RunConfig& config) = nullptr;
};

/// What a comparison knows of a trainer's scores: what its model gives each row for each column, recorded in the phase "energies". The
/// defaults hold for a trainer of which nothing is known.
struct ScoreSpec {
  std::string_view record = "energies";  ///< name of the record of rows by columns; that of the columns' ids is "columns"
  std::string_view row = "row";          ///< what a row is, before its id: "episode"
  std::string_view column = "column";    ///< what a column is to a row, for a count of them: "negative"
  /// What the column of that id is, where ids are a code: "log-probability, chunk 3, transition 2". Null: "column 17".
  std::string (*column_name)(int64_t id) = nullptr;
  int64_t own_columns = 0;               ///< columns of a row that do not count as such: its own candidate
  bool buffers_are_means = false;        ///< its buffers are means of scores, so that their rounding follows the scores' size
  /// Of so many columns, how many the loss takes of each row: those with the lowest scores, besides its own. Null or 0: all.
  /// Which these are is a choice, and rounding decides it where two scores are nearly equal.
  int64_t (*taken)(const RunConfig& config, int64_t columns) = nullptr;
  bool takes_some(const RunConfig& config) const { return taken != nullptr && taken(config, 1) > 0; }
};

/// A key of a config and what is wrong with it.
using KeyProblem = std::pair<std::string, std::string>;

/// What a config is checked for.
struct CheckedFor {
  bool certificate = false;         ///< both sides are computed from one state, against the plain reference
  bool allow_no_negatives = false;  ///< the matrix says that a loss without negatives is meant
};

/// What a run takes of the machine beside what its number of parameters tells.
struct RunCosts {
  double data_bytes = 0;       ///< of a process: the samples
  double held_bytes = 0;       ///< of a rank at each moment of a step: what it has gathered, scores, records
  double computing_bytes = 0;  ///< of a rank while it computes: what it keeps for the backward pass
  double step_flops = 0;       ///< of a rank's step, forward and backward
  double evaluation_flops = 0, curve_flops = 0;  ///< of the evaluation at the end, and of one before it
};

/// Keys that users name themselves: `env.NAME`. Their values are texts; an empty one is as if the key were not there.
struct OpenGroup {
  std::string_view prefix;  ///< "env."
  std::string_view help;
  FieldRef (*value)(RunConfig& config, std::string_view key, bool make) = nullptr;
};

/// What starts a run's ranks where these are a program of the user's and not lockstep-rank.
struct CommandLine {
  std::string shell;   ///< for /bin/sh -c
  std::string folder;  ///< where it runs
  std::vector<std::pair<std::string, std::string>> variables;
  bool starts_ranks = false;  ///< it starts all ranks itself; else it is started once for each rank
  std::string metrics_from;   ///< a log that it leaves, whose metrics are the run's; empty: none
  std::string led_by;         ///< id of the run that leads this one; empty: none
  std::vector<std::pair<std::string, std::string>> probe = {};  ///< further variables of the probe
};

struct TrainerSpec {
  std::string_view name = {};
  std::string_view help = {};  ///< one line

  /// The own key whose value, without the key, follows the layout in a cell's name ("8x3 global"); empty:
  /// none.
  std::string_view naming_key = {};
  /// Its own keys, which stand beside the core's; and its section with their defaults.
  std::span<const RunField> (*fields)() = nullptr;
  std::any (*section)() = nullptr;
  std::span<const OpenGroup> open_groups = {};
  /// What is wrong with a run's own keys, alone and with the core's.
  std::vector<KeyProblem> (*problems)(const RunConfig& config, const CheckedFor& what) = nullptr;

  /// Reads the data. Throws ConfigError if a file is missing or corrupt.
  DataFacts (*inspect_data)(const RunConfig& config) = nullptr;
  /// The same counts where they follow from the config alone; nothing where only the files tell them.
  std::optional<SampleCounts> (*counted_samples)(const RunConfig& config) = nullptr;
  /// Which keys give more samples of a part ("training", "held-out", "test"), with their values.
  std::string (*how_to_get_samples)(const RunConfig& config, std::string_view part) = nullptr;
  std::string_view samples_word = "samples";  ///< what its samples are called in messages, "pairs"

  /// Its model's parameters in their order. `channels`: of the data.
  std::vector<ModelParameter> (*parameters)(const RunConfig& config, int64_t channels) = nullptr;
  /// Null: next to nothing.
  RunCosts (*costs)(const RunConfig& config) = nullptr;
  /// A parameter that every config has: a planted bug acts on it where none is named.
  std::string_view usual_parameter = {};
  std::span<const MetricSpec> (*metrics)() = nullptr;
  /// The metric whose curve every comparison shows first.
  std::string_view shown_metric = {};

  /// Sets the trainer's own settings of the process that computes a cell's plain reference; layout, ranks and
  /// buckets are set already. Null: it keeps the cell's.
  void (*make_oracle)(const RunConfig& cell, RunConfig& oracle) = nullptr;
  /// The objective of a run in words that tell apart what a certificate tabulates: "infonce global".
  std::string (*objective)(const RunConfig& config) = nullptr;
  /// Is a run's loss 0 whatever the model does, because a row has no candidate but its own? Null: never.
  bool (*learns_nothing)(const RunConfig& config) = nullptr;
  /// How a run's objective differs from its reference's because its batch or layout differs: "a row has ...
  /// where the reference has ..."; null, or empty: it does not.
  std::string (*other_objective)(const RunConfig& config, const RunConfig& reference) = nullptr;
  /// Why the theory of the gradient noise scale does not apply to a run, or how far it does; null, or empty: it does.
  std::string (*noise_scale_caveat)(const RunConfig& config) = nullptr;
  /// Is one of the keys convention.* set? Texts of configs have them only then. Null: it has none.
  bool (*sets_convention)(const RunConfig& config) = nullptr;
  /// May a run's loss leave out rows of a step, without the sample ids telling which? Null: all rows count.
  bool (*rows_may_not_count)(const RunConfig& config) = nullptr;
  ScoreSpec scores = {};

  /// Of a trainer whose ranks are a command of the user's: what is started for a run in that folder. Its ranks are real, its traces are the
  /// probe's, and what it measures is what these hold. Null: lockstep-rank runs the trainer.
  CommandLine (*command)(const RunConfig& config, const std::string& run_dir) = nullptr;
  /// Settles its own settings by the folder of the config file. Null: nothing depends on it.
  void (*take_config_folder)(RunConfig& base, const std::string& folder) = nullptr;
  /// Takes out of a config what tells where files are, and decides nothing of a run, before it is hashed. Null: there is no such setting.
  void (*leave_out_places)(RunConfig& config) = nullptr;
  /// Makes a cell's run read that of its reference; false, or null: it does not.
  bool (*read_reference)(RunConfig& config, const std::string& reference_run) = nullptr;
  /// What its data hash is of, for the plan: "12 files of train/ (48 kB)". Null: nothing is said.
  std::string (*data_words)(const RunConfig& config) = nullptr;
  bool is_command() const { return command != nullptr; }
};

/// Every trainer, in the order in which they are listed; the first is the default. Defined in scenarios/specs.cpp.
std::span<const TrainerSpec* const> trainer_specs();

/// Null if there is none of that name.
const TrainerSpec* find_trainer_spec(std::string_view name);
/// The spec of a config's trainer, which must exist.
const TrainerSpec& spec_of(const RunConfig& config);

// Names and one line of help for what stands in rooms that need LibTorch, for programs that do not
// have it. A test holds this table and the real ones equal.

struct CatalogueEntry {
  std::string_view name;
  std::string_view help;
};

std::span<const CatalogueEntry> catalogue_scenarios();
std::span<const CatalogueEntry> catalogue_losses();
std::span<const CatalogueEntry> catalogue_mutants();
/// Metrics that outcomes can be judged by.
std::span<const CatalogueEntry> catalogue_metrics();

// The planted bugs as data: what each is, where it shows, and how it must be named. Torch-free; the tables
// in scenarios/mutants have the entries, each beside the code of its bug.

/// What a trial of a mutant draws from its seed; the rest stays as MutantConfig's defaults.
struct MutantDraws {
  bool rank = false;    ///< one rank, else all act
  bool step = true;     ///< the first (or only) step at which it acts
  bool tensor = false;  ///< one parameter
  bool bit = false;
  bool factor = false;
};

/// What `mutant.tensor` may name: nothing | one parameter | every parameter whose name begins so.
enum class MutantTensor { none, one, group };

struct MutantEntry {
  std::string_view name;
  std::string_view trainer = {};  ///< the only one that it fits, as it changes its parts; empty: any
  std::string_view help;          ///< one line
  std::string_view report = {};  ///< public report that it stands for, "owner/repository#number", or empty
  /// Settings that the run and its reference need for it to show, "key=value key=value".
  std::string_view settings = {};
  int min_world = 2;  ///< fewest ranks with which it shows
  MutantDraws draws = {};
  MutantTensor tensor = MutantTensor::none;
  /// name_of(Phase) of the first place where it shows, several separated by "|"; "failed" if the run ends by
  /// it. Empty, of a user's own fault: any.
  std::string_view phase = {};
  /// The tensor, stream, control value or collective that must be named: "$tensor" the drawn one, "" any of
  /// that phase, else a text that the named place must begin with; several are separated by "|".
  std::string_view where = {};
  std::string_view causes =
      {};  ///< codes that name it rightly, separated by spaces; "unexplained" where none may fit
  int64_t first_step = 0;  ///< the earliest step at which it may begin (it needs a step before it, say: 1)
  int64_t last_step =
      1000000;              ///< the latest step at which it may begin (it shows only at the start, say: 0)
  int64_t step_offset = 0;  ///< how many steps after it begins it shows
  /// It changes bits or types and not what is meant: a float64 twin computes without it.
  bool arithmetic = false;
  /// Why it cannot act on a run in exact arithmetic; empty: it can.
  std::string_view beyond_exact = {};
  bool at_epoch = false;  ///< it shows at the first step of the next epoch (at or after the step), not before
};

/// All mutants but "none", in the order in which a step reaches them; defined where the tables are.
std::span<const MutantEntry> mutant_entries();

/// Null if there is none of that name.
const MutantEntry* find_mutant(std::string_view name);

// What a run measures, by name, for programs that have no LibTorch: words of primary.metric. A test
// holds this table and what the trainer writes equal.

/// The metric of that name of any trainer, or null; trainers that share a name mean the same by it.
const MetricSpec* find_metric(std::string_view name);

/// Words of primary.metric: what outcomes can be judged by.
std::vector<std::string> outcome_metrics(const TrainerSpec& trainer);

/// Why a run would not measure a metric of outcome_metrics: "accuracy_256 is measured on 256 test pairs or
/// more, and there are 20; …". Empty if it does, or if that depends on samples that are not known.
std::string unmeasured(std::string_view metric, const RunConfig& config,
                       const std::optional<SampleCounts>& samples);

/// What is wrong if the data have too few training samples for a step of the run; empty if nothing.
std::string too_few_samples(const RunConfig& config, const SampleCounts& samples);

}  // namespace lockstep
