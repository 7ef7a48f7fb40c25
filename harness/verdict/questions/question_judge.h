#pragma once
// What a question's answer is made of: how its cells are judged, what it adds to the results, what the summary
// says and how the program ends. harness/verdict/questions/NAME/judge.cpp makes one; harness/verdict/plan/question.h is the
// half that the planner knows.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/errors.h"
#include "harness/verdict/questions/evidence_sources.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

class MatrixEvidence;
struct SortedCells;

struct QuestionJudge {
  /// The verdict of a cell that did not fail; power controls are judged by their outcome whatever is asked.
  VerdictKind (*verdict)(const CellResult& cell);
  /// A cell without an expectation is not as expected if it has one pair of seeds alone.
  bool needs_pairs = false;
  /// Compares runs of one layout that kept no traces; null: they are not compared.
  Mechanism (*compare_untraced)(const std::string& reference_dir, const std::string& cell_dir, int world_size,
                                const RankResultReader& read) = nullptr;
  /// Judges gradients at the reference's weights; null: they are compared with the measured band.
  Mechanism (*judge_forced)(const ForcedInputs& inputs) = nullptr;
  /// Reads what a step of a cell costs, from its first run; null: costs are not asked for.
  StepCosts (*read_costs)(const std::string& run_dir) = nullptr;
  /// References do not stand beside the cells.
  bool omits_references = false;

  /// Problems of a config that only the judge can see, found before anything runs.
  std::vector<ConfigProblem> (*problems)(const Matrix& matrix) = nullptr;
  /// Fills its part of the results when all cells are judged.
  void (*complete)(const MatrixEvidence& evidence, Results& results) = nullptr;

  /// What the summary says between failures and power controls.
  std::vector<std::string> (*sentences)(const Results& results, const SortedCells& cells);
  /// The whole summary, where it does not speak of single cells; empty, or null: `sentences` and the rest.
  std::vector<std::string> (*whole_summary)(const Results& results) = nullptr;
  /// Whether the question as a whole passed, which then decides alone; null: its cells decide.
  std::optional<bool> (*passed)(const Results& results) = nullptr;
};

/// The judge of a question, which must exist. Defined in harness/verdict/questions/judges.cpp.
const QuestionJudge& judge_of(std::string_view question);

/// Verdicts as most questions take them: `inconclusive` where there is no mechanism, or no outcome.
VerdictKind verdict_by_mechanism(const CellResult& cell);
VerdictKind verdict_by_outcome(const CellResult& cell);

}  // namespace lockstep
