#pragma once
// What a question asks of a config and plans. harness/verdict/questions/NAME/plan.cpp makes one, and a line in
// harness/verdict/questions/list.h makes it known; harness/verdict/questions/question_judge.h is the other half, which judges.

#include <any>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/config/field.h"

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
  own,    ///< derived: the question makes them with its cells
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

/// Every question, in the order in which they are listed. Defined in harness/verdict/questions/table.cpp.
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

}  // namespace lockstep
