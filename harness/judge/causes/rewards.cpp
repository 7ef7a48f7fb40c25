#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/base/numbers.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/forced/update.h"
#include "harness/lib/rewards/audit.h"

// Causes of wrong rewards, advantages and first ratios, in any run that records them by row.

namespace lockstep::causes {
namespace {

using rewards::AuditedRow;
using rewards::AuditedStep;

/// Of a row's column; `missing` where it has none.
double at_column(const AlignedRow& row, const std::vector<double>& values, int64_t column, double missing) {
  const auto found = std::ranges::find(row.columns, column);
  return found == row.columns.end() ? missing : values[static_cast<std::size_t>(found - row.columns.begin())];
}

/// Rewards by ascending id of what a step recorded.
std::vector<double> rewards_in(const std::optional<ForcedValues>& values) {
  std::map<int64_t, double> by_id;
  if (!values || !values->scores) return {};
  for (const ScoreRow& row : values->scores->rows) {
    const std::vector<int64_t>& columns = values->scores->columns[static_cast<std::size_t>(row.rank)];
    const auto column = std::ranges::find(columns, kRewardColumn);
    if (column == columns.end()) return {};
    by_id[row.row_id] = row.values[static_cast<std::size_t>(column - columns.begin())];
  }
  std::vector<double> all;
  for (const auto& [id, reward] : by_id) all.push_back(reward);
  return all;
}

AuditedRow audited(const AlignedRow& row) {
  const auto expected = [&](int64_t column, double none = 0) { return at_column(row, row.expected, column, none); };
  const auto found = [&](int64_t column, double none = 0) { return at_column(row, row.actual, column, none); };
  AuditedRow audited;
  audited.id = row.id;
  audited.rank = row.rank;
  audited.group = static_cast<int64_t>(found(kGroupColumn));
  audited.expected_reward = expected(kRewardColumn);
  audited.reward = found(kRewardColumn);
  audited.cost = expected(kCostColumn);
  audited.found_cost = found(kCostColumn);
  audited.expected_advantage = expected(kAdvantageColumn);
  audited.advantage = found(kAdvantageColumn);
  audited.expected_ratio = expected(kRatioColumn, kNaN);
  audited.ratio = found(kRatioColumn, kNaN);
  return audited;
}

/// Nothing where rewards were not recorded, or where what was scored already differs.
std::optional<AuditedStep> audited_step(const CauseInputs& inputs) {
  if (!inputs.forced || misses_scores(inputs)) return std::nullopt;
  AuditedStep step;
  step.band = inputs.forced->score_band;
  std::map<int, int64_t> counts;
  for (const AlignedRow& row : aligned_rows(inputs)) {
    if (std::ranges::find(row.columns, kRewardColumn) == row.columns.end()) return std::nullopt;
    for (std::size_t j = 0; j < row.columns.size(); ++j)
      if (row.columns[j] < kRewardColumn && step.differ(row.expected[j], row.actual[j])) return std::nullopt;
    step.rows.push_back(audited(row));
    step.rows.back().micro_step = counts[row.rank]++;
  }
  if (step.rows.empty()) return std::nullopt;
  const int64_t micro_steps = std::max<int64_t>(1, inputs.cell_facts.accumulation);
  for (AuditedRow& row : step.rows) row.micro_step = ((row.micro_step + 1) * micro_steps - 1) / counts[row.rank];
  std::ranges::stable_sort(step.rows, {}, &AuditedRow::id);
  step.ranks = static_cast<int>(inputs.forced->cell.scores->columns.size());
  step.before = rewards_in(inputs.forced->cell_before);
  if (const auto rules = trainer_rules(inputs).advantages; rules && inputs.cell_config) {
    const DeclaredAdvantages declared = rules(*inputs.cell_config);
    step.way = declared.way;
    step.penalty = declared.penalty;
    int64_t place = 0;
    for (AuditedRow& row : step.rows) row.group = place++ / declared.group_rows;
  } else {
    constexpr double kFloat32 = 1e-5;
    const std::vector<double> given = step.all(&AuditedRow::expected_reward);
    step.way = rewards::fitted_way({given, step.groups(), {}}, step.all(&AuditedRow::expected_advantage), kFloat32);
  }
  return step;
}

Answer wrong_reward(const CauseInputs& inputs) {
  auto step = audited_step(inputs);
  auto found = step ? rewards::audit(*step) : std::nullopt;
  if (step && !found) {
    // The band is that of all scores, which log-probabilities may make wider than a mistake in rewards.
    double largest = 0;
    for (const double reward : step->all(&AuditedRow::expected_reward)) largest = std::max(largest, std::abs(reward));
    step->band = std::min(step->band, 1e-7 * largest);
    found = rewards::audit(*step);
  }
  if (!found) return {};
  return of_rank(made(found->code, found->confidence, found->evidence), found->ranks);
}

/// Largest |ratio - 1| of a rank's rows; nothing if it is not recorded.
std::string ratio_words(const AuditedStep& step, const StepOfRun& cell, int rank) {
  if (const Record* gap = find_record(cell.ranks[static_cast<std::size_t>(rank)], Phase::loss, "ratio_gap"))
    return short_number(gap->value);
  double most = -1;
  for (const AuditedRow& row : step.rows)
    if (row.rank == rank && !std::isnan(row.ratio)) most = std::max(most, std::abs(row.ratio - 1));
  return most < 0 ? "" : short_number(most);
}

/// Of a step a row of the table for each rank, and a panel.
void add_step(const AuditedStep& step, const StepOfRun& cell, SuiteTable& table, SuiteChart& chart) {
  const std::vector<double> all = step.all(&AuditedRow::reward);
  const auto finite = rewards::screen(all, {}, {.non_finite = rewards::NonFinite::mask});
  const rewards::Moments seen = rewards::moments_of(rewards::counted_values(all, finite.counted));
  const double deviation = std::sqrt(seen.m2 / static_cast<double>(std::max<int64_t>(seen.count, 1)));
  const std::vector<int64_t> groups = step.groups();
  const rewards::AdvantageWay way = step.way.value_or(rewards::AdvantageWay{});
  std::vector<double> whole;
  if (step.way) whole = rewards::advantages_of({all, groups, {}}, way.estimator, way.convention).values;
  const auto finding = rewards::audit(step);
  ChartPanel panel{fmt::format("step {}", cell.step), {}};
  for (int rank = 0; rank < step.ranks; ++rank) {
    std::size_t rows = 0, right = 0, of_all = 0;
    ChartSeries series{fmt::format("rank {}", rank), CaseVerdict::good, {}};
    for (std::size_t i = 0; i < step.rows.size(); ++i) {
      const AuditedRow& row = step.rows[i];
      if (row.rank != rank) continue;
      ++rows;
      right += step.reward_right(row) ? 1 : 0;
      of_all += i < whole.size() && !step.differ(whole[i], row.advantage) ? 1 : 0;
      if (std::isfinite(row.reward + row.advantage)) series.points.push_back({row.reward, row.advantage});
    }
    const bool good = right == rows && of_all == rows;
    const std::string fits = !step.way        ? "no known convention"
                             : of_all == rows ? in_words(way)
                             : finding        ? finding->code
                                              : fmt::format("{} of {} of another kind", rows - of_all, rows);
    series.verdict = good ? CaseVerdict::good : CaseVerdict::fault;
    table.rows.push_back({{std::to_string(cell.step), std::to_string(rank), std::to_string(rows),
                           fmt::format("{} of {}", right, rows), short_number(seen.mean), short_number(deviation), fits,
                           ratio_words(step, cell, rank)},
                          series.verdict});
    std::ranges::sort(series.points, {}, &ChartPoint::x);
    panel.series.push_back(std::move(series));
  }
  chart.panels.push_back(std::move(panel));
}

}  // namespace

void add_reward_answers(const ForcedInputs& inputs, Mechanism& mechanism) {
  SuiteTable table{"rewards by step and rank",
                   "rewards: rows that have the reference's; mean and deviation: of all ranks' rewards; advantages: in "
                   "which way they are made of all rewards, or what else fits; ratio: largest |new / old probability - 1|",
                   {}, {}};
  for (const char* head : {"step", "rank", "rows", "rewards", "mean", "deviation", "advantages", "ratio"}) {
    table.columns.push_back({head, "", false});
  }
  SuiteChart chart{"advantages by reward",
                   "a line for each rank: where all rewards give mean and deviation, ranks lie on one line",
                   {"reward", ""}, {"advantage", ""}, false, {}, {}};
  RunReader reference(inputs.forced_reference), cell(inputs.forced_cell);
  CauseInputs at;
  at.trainer = trainer_of(reference, cell);
  at.cell_config = inputs.cell_config;
  at.cell_facts.accumulation = inputs.cell_config ? inputs.cell_config->accumulation : 1;
  std::optional<StepOfRun> passed;
  while (true) {
    const std::optional<StepOfRun> a = next_with_gradients(reference, passed), b = next_with_gradients(cell, passed);
    if (!a || !b || a->step != b->step) break;
    std::optional<ForcedValues> before = at.forced ? std::optional(std::move(at.forced->cell)) : std::nullopt;
    at.forced.emplace();
    at.forced->cell_before = std::move(before);
    at.forced->reference = forced_values(*a, reference.dir(), scores_of(at.trainer));
    at.forced->cell = forced_values(*b, cell.dir(), scores_of(at.trainer));
    at.forced->score_band = 1e-6;
    if (const auto step = audited_step(at)) add_step(*step, *b, table, chart);
  }
  if (table.rows.empty()) return;
  mechanism.tables.push_back(std::move(table));
  mechanism.charts.push_back(std::move(chart));
}

/// The codes are those of the audit.
std::span<const Hypothesis> reward_hypotheses() {
  static constexpr Hypothesis kTable[] = {
      {"local-advantage-statistics", in(Phase::scores), kScores, kExact, wrong_reward, "statistics"},
  };
  return kTable;
}

std::span<const CausePage> reward_pages() {
  static const std::vector<CausePage> kPages = [] {
    std::vector<CausePage> pages;
    for (const rewards::MistakePage& each : rewards::mistake_pages()) {
      pages.push_back({each.code, "energies", each.what, each.recognised, each.wrong, each.right, each.remedy});
    }
    return pages;
  }();
  return kPages;
}

}  // namespace lockstep::causes
