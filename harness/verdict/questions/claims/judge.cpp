// Cells are those of an outcome; what was told is compared with them.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "harness/base/clean_text.h"
#include "harness/base/exit_codes.h"
#include "harness/base/nearest.h"
#include "harness/base/word_list.h"
#include "harness/verdict/causes/cause.h"
#include "harness/verdict/questions/claims/claims.h"
#include "harness/verdict/questions/matrix_evidence.h"
#include "harness/verdict/questions/question_judge.h"
#include "harness/verdict/questions/sentences.h"
#include "harness/verdict/stats/stats.h"

namespace lockstep::questions::claims {
namespace {

/// Where a suite or another matrix leaves its results, beside this matrix's folder.
std::string results_beside(const std::string& out_dir, const std::string& name) {
  const std::filesystem::path own = std::filesystem::absolute(out_dir).lexically_normal();
  return ((own.has_filename() ? own.parent_path() : own.parent_path().parent_path()) / name / "results.json").string();
}

std::vector<std::string> files_beside(const Matrix& matrix, const std::string& out_dir) {
  std::vector<std::string> files;
  for (const Claim& claim : section_of<Claims>(matrix)) {
    for (const Condition& condition : claim.conditions) {
      if (condition.kind == Condition::Kind::suite || condition.kind == Condition::Kind::written) files.push_back(results_beside(out_dir, condition.cell));
    }
  }
  return files;
}

void complete(const MatrixEvidence& runs, Results& results) {
  const std::vector<CellResult>& cells = results.cells;
  ClaimEvidence evidence;
  evidence.results_beside = [&runs](const std::string& name) {
    return results_beside(runs.options().out_dir, name);
  };
  evidence.timing = results.timing ? &*results.timing : nullptr;
  evidence.primary = runs.matrix().primary;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = runs.matrix().cells[i];
    ArmEvidence own{&cells[i], cell.reference_name, cells[i].run, {}, {}, cell.config.layout.world_size};
    ArmEvidence reference{nullptr, "", cells[i].reference_run, {}, {}, cell.reference.layout.world_size};
    const auto add = [&runs](ArmEvidence& arm, int64_t seed, const PlannedRun* run) {
      if (!run) return;
      arm.seeds.emplace(seed, &runs.of(*run));
      arm.dirs.emplace(seed, runs.dir_of(*run));
    };
    for (const SeedPair& pair : runs.arms().pair_seeds(cell)) {
      add(own, pair.seed, pair.cell);
      add(reference, pair.seed, pair.reference);
    }
    evidence.arms.insert_or_assign(cell.name, std::move(own));
    evidence.arms.emplace(cell.reference_name, std::move(reference));
  }
  results.claims = judge_claims(section_of<Claims>(runs.matrix()), evidence);
}

/// Reports claims that name an unknown cause, with the nearest one. The codes stand in a room that the
/// planner does not know.
std::vector<ConfigProblem> problems(const Matrix& matrix) {
  std::vector<std::string_view> known;
  for (const CausePage& page : cause_pages()) known.push_back(page.code);
  std::vector<ConfigProblem> problems;
  for (const Claim& claim : section_of<Claims>(matrix)) {
    for (const Condition& condition : claim.conditions) {
      if (condition.cause.empty() || find_cause_page(condition.cause) != nullptr) continue;
      problems.push_back(
          {matrix.file, condition.place.line, condition.place.column,
           fmt::format("there is no cause {}; `lockstep explain` lists all", in_quotes(condition.cause)),
           std::string(nearest(condition.cause, known))});
    }
  }
  return problems;
}

/// "A1, A6" of the claims in that state.
std::string claims_in(const Results& results, ClaimState state) {
  std::vector<std::string> ids;
  for (const ClaimResult& claim : results.claims) {
    if (claim.state == state) ids.push_back(claim.id);
  }
  return join_words(ids);
}

std::vector<std::string> sentences(const Results& results, const SortedCells& cells) {
  // `--only` may have left none.
  if (results.claims.empty()) return outcome_sentences(results, cells);
  std::vector<std::string> parts;
  const auto add_part = [&](ClaimState state, const char* one, const char* several) {
    const auto count = std::ranges::count(results.claims, state, &ClaimResult::state);
    if (count > 0)
      parts.push_back(fmt::format("{} {}", claims_in(results, state), count == 1 ? one : several));
  };
  add_part(ClaimState::holds, "holds", "hold");
  add_part(ClaimState::does_not_hold, "does not hold", "do not hold");
  add_part(ClaimState::undecided, "is undecided", "are undecided");
  add_part(ClaimState::not_testable, "cannot be tested here", "cannot be tested here");
  if (const auto waiting = std::ranges::count(results.claims, ClaimState::waiting, &ClaimResult::state);
      waiting > 0)
    parts.push_back(fmt::format("{} wait{}", waiting, waiting == 1 ? "s" : ""));
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
  return {"Of the claims, " + text + "."};
}

std::vector<int> exit_codes(const Results& results) {
  std::vector<int> codes;
  for (const ClaimResult& claim : results.claims) {
    if (!claim.as_expected) codes.push_back(claim.state == ClaimState::undecided ? kExitUndecided : kExitUnexpected);
  }
  return codes;
}

}  // namespace

const QuestionJudge& judge() {
  static const QuestionJudge kJudge{
      .verdict = &verdict_by_outcome,
      .problems = &problems,
      .files_beside = &files_beside,
      .complete = &complete,
      .sentences = &sentences,
      .exit_codes = &exit_codes,
  };
  return kJudge;
}

}  // namespace lockstep::questions::claims
