#pragma once

#include <any>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/base/errors.h"
#include "harness/verdict/config/field.h"
#include "harness/verdict/config/problems.h"
#include "harness/verdict/config/run_config.h"
#include "harness/verdict/config/settings.h"
#include "harness/verdict/plan/question.h"

// A YAML matrix, read: cells, references, controls, seeds and the question that is asked.

namespace lockstep {

/// The question of a config that names none, and the sections of all questions with their defaults. Defined
/// in harness/verdict/questions/table.cpp.
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
  std::string launcher = "local";  ///< who starts the ranks: harness/verdict/plan/launcher_choice.h
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

}  // namespace lockstep
