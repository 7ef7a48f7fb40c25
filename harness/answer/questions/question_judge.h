#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/base/text.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/compare/band.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/evidence/run_evidence.h"
#include "harness/plan/matrix/plan.h"

// What reads and compares runs, as functions, so that the judge's rules can be tried without traces.

namespace lockstep {

struct QuestionJudge;

/// Where the judge's evidence comes from. Each may throw std::runtime_error (TraceError, OutcomeError): the
/// cell failed.
struct EvidenceSources {
  RankResultReader read_rank_result;
  std::function<Mechanism(const CompareOptions&)> compare_runs;
  std::function<Mechanism(const ForcedInputs&)> judge_forced;
  std::function<Certification(const std::string& emulated_dir, const std::string& real_dir, int64_t asked)>
      certify;
  /// Of a free run; empty: no noise scale is asked for.
  std::function<std::optional<NoiseScale>(const RunConfig& config, const std::string& run_dir)>
      read_noise_scale = {};
  /// Asked only where bits part over a backend that publishes no order of adding.
  std::function<Certification(const BandInputs& inputs)> hold_to_band = {};
  /// Null: that of the matrix's question.
  const QuestionJudge* question = nullptr;
};

// What a question's answer is made of: how its cells are judged, what it adds to the results, what the summary
// says and how the program ends. harness/answer/questions/NAME/judge.cpp makes one; harness/plan/matrix/question.h is the
// half that the planner knows.

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
  /// Judges each cell's run by itself; null: it is compared with its reference's.
  Mechanism (*judge_run)(const std::string& run_dir) = nullptr;
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

/// The judge of a question, which must exist. Defined in harness/answer/questions/judges.cpp.
const QuestionJudge& judge_of(std::string_view question);

/// Verdicts as most questions take them: `inconclusive` where there is no mechanism, or no outcome.
VerdictKind verdict_by_mechanism(const CellResult& cell);
VerdictKind verdict_by_outcome(const CellResult& cell);

// Judges what lies on disk; launches nothing.

struct JudgeOptions {
  std::string out_dir;
  std::string command;                      ///< "lockstep run configs/x.yaml", for the rerun lines
  std::map<std::string, Failure> failures;  ///< by run id, as the launcher saw them
  int jobs = 1;                             ///< threads
  bool outcomes_only =
      false;  ///< verdicts by outcome and nothing else: all that a look of `seeds: auto` asks
};

/// Verdicts of every cell of the plan, from the traces and rank results under out_dir/runs.
Results judge_matrix(const Plan& plan, const JudgeOptions& options);

/// The exit code of a finished matrix from its cells: first of 7, 2, 3, 4, 1, 5 that occurred, else 0; 6 if
/// no cell.
int exit_code_of(const Results& results);

}  // namespace lockstep

// Every question, one line each, in the order in which they are listed; a config of one seed that names none asks
// the first.
//
// harness/answer/questions/NAME/ holds both halves of a question: plan.cpp what it asks of a config (QuestionPlan),
// judge.cpp what its answer is made of (QuestionJudge). Two tables are made from this one list, table.cpp and
// judges.cpp, because lockstep-rank links the planner: the judging half is no part of it, or every reworded
// sentence would make another build of it, and all runs would train anew.

#define LOCKSTEP_QUESTIONS(EACH) \
  EACH(mechanism)                \
  EACH(outcome)                  \
  EACH(certificate)              \
  EACH(detection)                \
  EACH(replay)
