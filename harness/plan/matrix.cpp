#include "harness/plan/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "harness/base/read_file.h"
#include "harness/config/trainer_spec.h"
#include "harness/plan/detection.h"
#include "harness/plan/matrix_source.h"
#include "harness/plan/select.h"

namespace lockstep {
namespace {

// In the order of the enumerators.
constexpr auto kVerdictNames = std::to_array<std::string_view>(
    {"identical", "within_envelope", "equivalent", "divergent", "inconclusive", "failed"});
static_assert(kVerdictNames.size() == static_cast<std::size_t>(VerdictKind::failed) + 1);
constexpr auto kQuestionNames = std::to_array<std::string_view>(
    {"mechanism", "outcome", "certificate", "detection", "claims", "calibration"});
static_assert(kQuestionNames.size() == static_cast<std::size_t>(Question::calibration) + 1);

void select_cells(const std::string& only, std::vector<Cell>& cells, bool sound, Problems& problems) {
  if (only.empty()) return;
  const auto is_named = [&only](const Cell& cell) { return cell.name == only; };
  if (std::any_of(cells.begin(), cells.end(), is_named)) {
    std::erase_if(cells, std::not_fn(is_named));
    return;
  }
  const TrainerSpec& trainer = cells.empty() ? *trainer_specs().front() : spec_of(cells.front().config);
  const Selection selection(only, trainer, problems.add_source("--only"), problems);
  if (sound) std::erase_if(cells, [&selection](const Cell& cell) { return !selection.selects(cell); });
}

// Steps that no run reaches are left out, so that a shortened trial needs no other edit.
void clip_forced_steps(Matrix& matrix, int64_t steps) {
  std::erase_if(matrix.forced_steps, [steps](int64_t step) { return step >= steps; });
}

// Who asks for some cells asks for the claims that they can decide.
void drop_unselected_claims(Matrix& matrix, const std::vector<Cell>& cells, const Overrides& overrides) {
  if (overrides.only.empty()) return;
  std::erase_if(matrix.claims, [&cells](const Claim& claim) {
    const std::vector<std::string> names = cells_of(claim);
    return std::any_of(names.begin(), names.end(), [&cells](const std::string& name) {
      return std::none_of(cells.begin(), cells.end(), [&name](const Cell& cell) {
        return cell.name == name || cell.reference_name == name;
      });
    });
  });
}

}  // namespace

Matrix parse_matrix(const std::string& text, const std::string& file_name, const Overrides& overrides) {
  Problems problems(file_name);
  MatrixSource source = read_source(text, file_name, overrides, problems);
  std::vector<Cell> cells;
  const bool detects = source.matrix.question == Question::detection;
  if (source.sound) cells = detects ? detection_cells(source, problems) : expand_cells(source, problems);
  if (source.sound) check_claims(source.matrix.claims, cells, problems);
  select_cells(overrides.only, cells, source.sound, problems);
  if (source.sound) check_matrix(source, cells, problems);
  problems.throw_if_any();
  Matrix matrix = std::move(source.matrix);
  clip_forced_steps(matrix, source.base.steps);
  // Runs of a detection matrix differ in length: there the planner clips each run's own.
  if (!detects) {
    for (const Cell& cell : cells) clip_forced_steps(matrix, cell.config.steps);
  }
  drop_unselected_claims(matrix, cells, overrides);
  if (!overrides.only.empty())
    matrix.timing.layouts.clear();  // one cell again is no reason to time all again
  matrix.cells = std::move(cells);
  return matrix;
}

Matrix read_matrix(const std::string& file, const Overrides& overrides) {
  return parse_matrix(read_config_text(file), file, overrides);
}

bool asks_outcome(Question question) { return question == Question::outcome || question == Question::claims; }

bool derives_reference(Question question) {
  return question == Question::certificate || question == Question::detection;
}

std::vector<int64_t> seeds_of(const Matrix& matrix, const Cell& cell) {
  if (matrix.question == Question::detection) return {cell.config.seed};
  return cell.seeds.empty() ? matrix.seeds : cell.seeds;
}

std::span<const std::string_view> verdict_names() { return kVerdictNames; }
std::span<const std::string_view> question_names() { return kQuestionNames; }

const char* name_of(VerdictKind kind) { return kVerdictNames[static_cast<std::size_t>(kind)].data(); }
const char* name_of(Question question) { return kQuestionNames[static_cast<std::size_t>(question)].data(); }

}  // namespace lockstep
