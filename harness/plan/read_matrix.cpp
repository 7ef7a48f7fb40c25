#include "harness/plan/read_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "harness/base/read_file.h"
#include "harness/config/trainer_spec.h"
#include "harness/plan/drift.h"
#include "harness/plan/matrix_source.h"
#include "harness/plan/question.h"
#include "harness/plan/read_source.h"
#include "harness/plan/select.h"

namespace lockstep {
namespace {

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

void check_sections(const QuestionPlan& asks, const MatrixSource& source, const std::vector<Cell>& cells,
                    Problems& problems) {
  for (const QuestionPlan* each : question_plans()) {
    const auto check = each == &asks ? each->check : each->check_unasked;
    if (check != nullptr) check(source, cells, problems);
  }
}

}  // namespace

Matrix parse_matrix(const std::string& text, const std::string& file_name, const Overrides& overrides) {
  Problems problems(file_name);
  MatrixSource source = read_source(text, file_name, overrides, problems);
  std::vector<Cell> cells;
  const QuestionPlan& asks = asked_by(source.matrix);
  if (source.sound) {
    cells = asks.draws_cells() ? asks.cells(source, problems) : expand_cells(source, problems);
    check_sections(asks, source, cells, problems);
  }
  select_cells(overrides.only, cells, source.sound, problems);
  if (source.sound) check_matrix(source, cells, problems);
  problems.throw_if_any();
  Matrix matrix = std::move(source.matrix);
  clip_forced_steps(matrix, source.base.steps);
  // Trials differ in length: there the planner clips each run's own.
  if (!asks.draws_cells()) {
    for (const Cell& cell : cells) clip_forced_steps(matrix, cell.config.steps);
  }
  if (!overrides.only.empty()) {
    // A selection of cells asks for what they can decide, and running a cell again is no reason to time all
    // layouts again.
    if (asks.select != nullptr) asks.select(matrix, cells);
    matrix.timing.layouts.clear();
  }
  if (asks.trains) keep_drift_snapshots(cells);
  matrix.cells = std::move(cells);
  return matrix;
}

Matrix read_matrix(const std::string& file, const Overrides& overrides) {
  return parse_matrix(read_config_text(file), file, overrides);
}

}  // namespace lockstep
