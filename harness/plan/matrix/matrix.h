#pragma once

#include <nlohmann/json_fwd.hpp>

#include <any>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/base/text.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/config/settings.h"

// What a question asks of a config and plans. harness/answer/questions/NAME/plan.cpp makes one, and a line in
// harness/answer/questions/list.h makes it known; harness/answer/questions/question_judge.h is the other half, which judges.

namespace lockstep {

struct Cell;
struct Entry;
struct Matrix;
struct MatrixSource;
struct PlannedRun;

using MatrixField = Field<Matrix>;

/// A key of a question's own section that is no plain field: a list of maps, or of words.
struct QuestionKey {
  std::string_view key;  ///< dotted
  void (*read)(const Entry& entry, MatrixSource& source, Problems& problems);
  nlohmann::ordered_json (*schema)();
  bool settable = false;  ///< by --set; else in the file alone
};

/// Where the references of a question's cells come from.
enum class References {
  given,  ///< the config's section `reference`
  plain,  ///< derived: one process that computes by the loss's plain reference what the cell's ranks mean
  own,    ///< derived: the question makes them with its cells, or takes each cell for its own
};

struct QuestionPlan {
  std::string_view name;
  std::string_view help;  ///< what is asked, without a question mark: "does it learn the same"

  /// A config of several seeds that names no question asks this one; one of a single seed asks the table's
  /// first.
  bool of_several_seeds = false;

  /// A cell's verdict is whether it learns the same as its reference, which takes power controls; else what it
  /// computes decides. Every run must measure the primary metric, traces may be off, and seeds may be `auto`.
  bool by_outcome = false;
  /// Cells train; else gradients at the reference's weights are all that is computed of them.
  bool trains = true;
  /// Without traces, runs of one layout are compared by what their ranks' results say.
  bool compares_results = false;
  /// Its runs may compute a kept step again (`replay`).
  bool takes_replay = false;
  References references = References::given;
  /// What it asks where the runs are a command of the user's, if that is planned in another way; null: in the same.
  const QuestionPlan& (*of_command)() = nullptr;

  bool derives_reference() const { return references != References::given; }
  /// Both sides are computed from one state, against the loss's plain reference.
  bool against_plain() const { return references == References::plain; }
  /// Its cells are trials that it makes itself, each with a seed of its own.
  bool draws_cells() const { return cells != nullptr; }

  /// Its own section of a matrix with its defaults (section_of), and the keys that fill it. A group of keys has
  /// the question's name.
  std::any (*section)() = nullptr;
  std::span<const MatrixField> (*fields)() = nullptr;
  std::span<const QuestionKey> (*keys)() = nullptr;

  /// Settles what a config of this question leaves unsaid; reports keys that have no place in it.
  void (*finish)(MatrixSource& source, Problems& problems) = nullptr;
  /// Its cells; null: those of axes and includes.
  std::vector<Cell> (*cells)(MatrixSource& source, Problems& problems) = nullptr;
  /// Reports what cannot be asked of these cells, before `--only` selects some; and what is wrong where another
  /// question is asked and this one's section is given all the same.
  void (*check)(const MatrixSource& source, const std::vector<Cell>& cells, Problems& problems) = nullptr;
  void (*check_unasked)(const MatrixSource& source, const std::vector<Cell>& cells,
                        Problems& problems) = nullptr;

  /// What follows "NAME · QUESTION: " on a plan's first line; null: seeds, and of an outcome its metric and
  /// margin.
  std::string (*headline)(const Matrix& matrix) = nullptr;
  /// The line of a plan that a run is counted in; null: that of its cell.
  std::string (*line_of)(const PlannedRun& run) = nullptr;
};

/// Every question, in the order in which they are listed. Defined in harness/answer/questions/table.cpp.
std::span<const QuestionPlan* const> question_plans();
/// Their names, in that order.
std::span<const std::string_view> question_names();
/// Null if there is none of that name.
const QuestionPlan* find_question(std::string_view name);
/// The question of that name, which must exist.
const QuestionPlan& question_named(std::string_view name);
/// What a matrix asks.
const QuestionPlan& asked_by(const Matrix& matrix);

/// The question's own key that is no plain field; null if there is none of that name.
const QuestionKey* find_question_key(std::string_view key);

// A YAML matrix, read: cells, references, controls, seeds and the question that is asked.

/// The question of a config that names none, and the sections of all questions with their defaults. Defined
/// in harness/answer/questions/table.cpp.
std::string default_question();
std::vector<std::any> question_sections();

enum class VerdictKind { identical, within_envelope, equivalent, divergent, inconclusive, failed };

/// What decides an outcome: Student's t on the mean of the paired differences, which takes them for normal, or
/// the sign test on their median, which takes nothing for granted but that pairs are independent.
enum class OutcomeTest { t, sign };

struct Primary {
  std::string metric;    ///< empty: the one that the trainer shows first
  double margin = 0.03;  ///< in units of the metric, > 0
  double alpha = 0.05;   ///< in (0, 0.5)
  double target = 0;     ///< value of the metric that runs are timed to, in steps; 0: none
  OutcomeTest test = OutcomeTest::t;
};

/// `seeds: auto`: seeds 0, 1, 2, ... are added to the cells that are undecided, look by look.
struct SeedsAuto {
  bool on = false;
  int first = 5;        ///< seeds at the first look
  int step = 5;         ///< added from look to look
  int most = 40;        ///< seeds at the last look
  double budget_s = 0;  ///< no look is begun after so long; 0: no limit
};

/// Layouts that are timed: real ranks, each run alone on the machine, never reused.
struct TimingConfig {
  std::vector<Layout> layouts;  ///< empty: nothing is timed
  int64_t steps = 100;
  int repeats = 3;
};

/// What decides a forced comparison where float64 twins do not: a declared bound, or, of runs of other programs, what repeats of
/// the reference measure.
struct BandConfig {
  double factor = 8.0;  ///< times the largest difference over the repeats
  double floor = 4.0;   ///< c of the floor c * epsilon * sum of |terms|
  /// > 0: nothing is measured, and the band of a gradient is exact * max(|g_ref|, |sum of |terms||); of
  /// energies, loss and gradient norm the same share of their size.
  double exact = 0;
};

/// What is shown of each cell beside what is asked.
struct CertifyConfig {
  int64_t exact = 0;  ///< so many first steps in exact arithmetic, cell against reference, one seed; 0: none
};

/// Which execution the ranks of cells get.
enum class RanksPolicy {
  automatic,  ///< emulated, certified by a real prefix
  emulated,
  real,
  fit,  ///< real where the machine or the job has room for all ranks of the layout, else as automatic
};

/// Do emulated ranks need a prefix on real ones to stand in for them?
inline bool certifies_prefixes(RanksPolicy policy) { return policy == RanksPolicy::automatic || policy == RanksPolicy::fit; }

struct Cell {
  std::string name;            ///< stable and readable: "8x3 local", "8x3 global lr_scale=0.125"
  std::string short_name;      ///< without the part about its own reference; empty: the name
  RunConfig config;            ///< with seed = the first seed
  RunConfig reference;         ///< the run that it should equal
  std::string reference_name;  ///< "1x24 global"
  bool paired = false;         ///< `same_as: cell`: the reference is this config but for the keys it names
  std::vector<std::pair<std::string, std::string>> settings;  ///< axis -> value, in the axes' order
  std::vector<std::string> declared;  ///< keys that are asked about: of axes, and of the expectation that holds for it
  bool power_control = false;
  bool noise = false;   ///< the reference but for one named perturbation: an A/A pair, shown and never judged
  bool anchor = false;  ///< equals its reference: shown as what the others are compared with
  std::vector<int64_t> seeds;  ///< of `seeds: auto`: those that it has so far; or its own. Empty: the matrix's
  std::vector<VerdictKind> expected;  ///< empty: any verdict but `failed` will do
  /// Where the keys of its own, and of its reference's block as "reference.KEY", are given; under "" the cell.
  std::map<std::string, Place, std::less<>> places = {};
};

struct Matrix {
  std::string name;
  std::string file;
  std::string question_text;  ///< the config's first comment line
  std::string question = default_question();  ///< name of one of question_plans()
  bool of_command = false;  ///< its runs are a command of the user's
  Primary primary;
  BandConfig band;
  RanksPolicy ranks = RanksPolicy::automatic;
  int64_t certify_steps = 50;         ///< length of the real prefix of each cell, one seed a cell; 0: none
  CertifyConfig certify;
  std::vector<int64_t> forced_steps;  ///< clipped to < steps; empty: no forced comparison
  std::vector<int64_t> seeds;         ///< of `seeds: auto`: all that any cell has so far
  SeedsAuto seeds_auto;
  std::vector<Perturbation> noise;  ///< A/A pairs of the first cell's reference, and of the cells that noise_of names
  TimingConfig timing;
  std::string launcher = "local";  ///< who starts the ranks: harness/plan/matrix/launcher_choice.h
  std::string replay;  ///< a kept step's trace that stands in for training; empty: train
  /// A cell may have another global batch than its reference; their lengths then give both as many samples.
  bool allow_unequal_batch = false;
  bool allow_no_negatives = false;  ///< a cell may have no negatives: its loss is 0
  std::vector<std::any> sections = question_sections();  ///< what questions ask besides: see section_of
  std::vector<Cell> cells;
};

/// A question's own section, of the type that its QuestionPlan::section makes.
template <class Section>
const Section& section_of(const Matrix& matrix) {
  const Section* found = nullptr;
  for (const std::any& section : matrix.sections) {
    if (found == nullptr) found = std::any_cast<Section>(&section);
  }
  LOCKSTEP_CHECK(found != nullptr, "a matrix has the section of every question");
  return *found;
}
template <class Section>
Section& section_of(Matrix& matrix) {
  return const_cast<Section&>(section_of<Section>(static_cast<const Matrix&>(matrix)));
}

/// What the command line adds to a config.
///
/// `set` gives a base value or a scalar key of the matrix (primary.margin, certify_steps, seeds,
/// reference.layout); of a key that is an axis it replaces the whole axis: `layout=8x3`, `layout=[3x8, 8x3]`.
/// Values are read as YAML.
///
/// `only` joins terms by `&&`, `||`, `!` and parentheses: `key==value`, `key!=value` (by value, any config
/// key or name), `key~part` (part of the value's text), and a bare or quoted word: part of the cell's name.
/// The whole text may also be the exact name of one cell: "8x3 global lr_scale=0.125".
struct Overrides {
  std::vector<std::string> set;  ///< key=value, dotted keys
  std::string only;              ///< which cells; empty: all
  std::string seeds;             ///< "A..B" or "a,b,c"; empty: as in the file
  std::string launcher;          ///< who starts the ranks; empty: as in the file
};

/// Are its runs a command of the user's? A matrix has one trainer.
bool trains_command(const Matrix& matrix);

/// The seeds that a cell runs with: its own if it has some, else the matrix's.
std::vector<int64_t> seeds_of(const Matrix& matrix, const Cell& cell);

const char* name_of(VerdictKind kind);
/// All verdicts' words, in the order of their enumerators.
std::span<const std::string_view> verdict_names();

/// "t", "sign".
const char* name_of(OutcomeTest test);
std::span<const std::string_view> outcome_test_names();

/// References, by name, of the cells of an outcome that are compared with no power control: nothing will show
/// that those comparisons could see a difference. Cells whose references train towards the same share their
/// controls.
std::vector<std::string> references_without_control(const Matrix& matrix);

// The output folder of a matrix: whose it is.

/// "out/<name>".
std::string default_out_dir(const Matrix& matrix);

/// Content of OUT/matrix.json, which says whose folder OUT is: {"file": …, "name": …, "schema_version": 1}.
std::string matrix_stamp(const Matrix& matrix);

/// Throws ConfigError naming both matrices if `out_dir` holds the results of a matrix of another name. A
/// folder that is not there yet or has no matrix.json is free to take.
void check_out_dir(const Matrix& matrix, const std::string& out_dir);

// What a matrix file and the command line say, read but not yet expanded into cells.

struct ExpectRule {
  Rule when;
  std::vector<VerdictKind> verdicts;
};

/// A cell beside the product of the axes.
struct Included {
  std::vector<Setting> settings;
  std::vector<Setting> reference;  ///< what its reference has besides the matrix's
  std::vector<int64_t> seeds;      ///< empty: the matrix's
  Place place;
};

struct MatrixSource {
  Matrix matrix;                ///< all but its cells
  RunConfig base;               ///< of cells and references, without planted faults
  std::vector<Setting> faults;  ///< top-level mutant.*: of cells alone
  std::vector<Choice> axes;
  std::vector<Included> include;
  std::vector<Setting> reference;  ///< keys of the reference's block
  bool same_as_cell = false;
  bool reference_given = false;  ///< in the file or by --set
  std::vector<Rule> exclude;
  std::vector<Rule> power_controls;
  std::vector<Rule> noise_of;  ///< cells that get A/A pairs of their own
  std::vector<ExpectRule> expect;
  std::set<std::string, std::less<>> set_keys;       ///< given by --set
  std::map<std::string, Place, std::less<>> places;  ///< where each key was last given a value
  bool sound = true;  ///< everything that decides the cells was read without a problem

  /// Where `key` was given; the file's first line if nowhere.
  Place place_of(std::string_view key) const;
};

/// Cells of the product of axes without the excluded ones, then the included ones; names, references,
/// expectations. Reports rules that match nothing, duplicate cells, and cells that would be compared with
/// themselves.
std::vector<Cell> expand_cells(const MatrixSource& source, Problems& problems);

/// What check_matrix would say of that cell alone.
std::vector<std::string> cell_problems(const MatrixSource& source, const Cell& cell);

/// Reports combinations of values that cannot run or cannot be judged, each once with the cells that it
/// concerns.
void check_matrix(const MatrixSource& source, const std::vector<Cell>& cells, Problems& problems);

// The matrix's own scalar keys as data: name, question, primary.margin, …

WordList words_of(RanksPolicy);
WordList words_of(OutcomeTest);

/// These, then those that questions have of their own.
std::span<const MatrixField> matrix_fields();
/// Null if there is none of that key.
const MatrixField* find_matrix_field(std::string_view key);

// The looks of `seeds: auto`: how many seeds each has, and which seeds a matrix has at one of them.

struct MatrixSource;

/// More looks than this show nothing more, and each costs a part of alpha.
inline constexpr int kMostAnalyses = 100;

/// Seeds at each look: first, first + step, ... and most.
std::vector<int> analysis_sizes(const SeedsAuto& seeds);

/// 0, 1, 2, ...: the seeds that a cell has at a look of `count`.
std::vector<int64_t> seeds_of_analysis(int count);

/// Gives each cell the seeds of its look, and the matrix the seeds of all cells.
///
///   counts  seeds of each cell, in the order of matrix.cells
void set_analysis(Matrix& matrix, const std::vector<int>& counts);

/// Reports looks that cannot be taken, and questions whose verdict more seeds do not change.
void check_seeds_auto(const MatrixSource& source, Problems& problems);

/// "5 to 40 seeds, 5 at a time".
std::string interim_analyses_in_words(const SeedsAuto& seeds);

// Cells that are their reference in another arithmetic: what parts the two runs is rounding alone, and how far it
// carries them can be followed step by step.

/// Is `arithmetic` the one key in which the cell differs from its reference?
bool rounds_alone(const Cell& cell);

/// Steps before which both runs keep their parameters whole: 1, 2, 5, 10, 20, 50, ... and the last.
std::vector<int64_t> drift_steps(int64_t steps);

/// Adds these to the snapshots of such cells and their references, and to every cell of the same reference, so that they go
/// on sharing its runs.
void keep_drift_snapshots(std::vector<Cell>& cells);

// Parts of the JSON Schema of configs, as several sections have them.

/// What `seeds` may be.
SchemaJson seeds_schema();

/// JSON Schema (draft-07) of the configs that read_matrix accepts.
std::string config_schema();

}  // namespace lockstep
