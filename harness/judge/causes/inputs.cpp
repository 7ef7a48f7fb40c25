#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/record.h"

// Causes of rows that hold something else than the reference's rows of the same samples, of averages of the weights, and of held-out samples
// that are evaluated twice or not at all.

namespace lockstep::causes {
namespace {

/// One sample's labels in both runs.
struct LabelRow {
  int64_t id = 0;
  int rank = 0;
  std::size_t place = 0;  ///< among its rank's rows
  std::vector<double> expected, actual;
};

/// Values of a record of rows by sample id, in that phase.
std::map<int64_t, std::vector<double>> rows_by_sample(const StepOfRun& step, Phase phase, const std::string& name) {
  std::map<int64_t, std::vector<double>> rows;
  for (const StepRecords& rank : step.ranks) {
    const Record* record = find_record(rank, phase, name);
    const auto values = record ? values_of(*record) : std::nullopt;
    if (!values || record->ids.empty()) continue;
    const auto width = static_cast<std::ptrdiff_t>(values->size() / record->ids.size());
    for (std::size_t i = 0; i < record->ids.size(); ++i) {
      const auto begin = values->begin() + static_cast<std::ptrdiff_t>(i) * width;
      rows.try_emplace(record->ids[i], begin, begin + width);
    }
  }
  return rows;
}

std::vector<LabelRow> label_rows(const CauseInputs& inputs) {
  std::vector<LabelRow> rows;
  if (inputs.difference.phase != Phase::inputs || inputs.difference.divergence.where != "labels" || !inputs.reference || !inputs.cell) return rows;
  const auto expected = rows_by_sample(*inputs.reference, Phase::inputs, "labels");
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    for (const Record* record : records_of(inputs.cell->ranks[rank], Phase::inputs)) {
      const auto values = values_of(*record);
      if (record->name != "labels" || !values || record->ids.empty()) continue;
      const auto width = static_cast<std::ptrdiff_t>(values->size() / record->ids.size());
      for (std::size_t i = 0; i < record->ids.size(); ++i) {
        const auto found = expected.find(record->ids[i]);
        const auto begin = values->begin() + static_cast<std::ptrdiff_t>(i) * width;
        if (found != expected.end() && std::ssize(found->second) == width)
          rows.push_back({record->ids[i], static_cast<int>(rank), i, found->second, {begin, begin + width}});
      }
    }
  }
  return rows;
}

/// Places behind which a rank's part of the sequences ends, but for the last: as placements tell, or else as equal parts would.
std::vector<std::set<std::size_t>> edges_of(const CauseInputs& inputs, std::size_t width) {
  std::set<std::size_t> placed;
  for (const auto& rank : inputs.cell->parts) {
    for (const Record& part : rank) {
      if (part.phase == Phase::inputs && part.name == "labels" && part.shape.size() > 1)
        placed.insert(static_cast<std::size_t>(part.placement->offset[1] + part.shape[1]) - 1);
    }
  }
  if (!placed.empty()) return {placed};
  std::vector<std::set<std::size_t>> guesses;
  for (std::size_t parts = 2; parts <= std::min(width / 2, inputs.cell->ranks.size()); ++parts) {
    if (width % parts != 0) continue;
    guesses.emplace_back();
    for (std::size_t part = 1; part <= parts; ++part) guesses.back().insert(part * (width / parts) - 1);
  }
  return guesses;
}

Answer labels_shifted_at_shard_edge(const CauseInputs& inputs) {
  const std::vector<LabelRow> rows = label_rows(inputs);
  if (rows.empty() || rows[0].expected.size() < 2) return {};
  std::set<std::size_t> wrong;
  for (const LabelRow& row : rows) {
    for (std::size_t i = 0; i < row.expected.size(); ++i) {
      if (row.expected[i] != row.actual[i]) wrong.insert(i);
    }
  }
  for (const std::set<std::size_t>& edges : edges_of(inputs, rows[0].expected.size())) {
    std::set<std::size_t> inner = edges;
    inner.erase(rows[0].expected.size() - 1);
    if (!std::ranges::includes(edges, wrong) || !std::ranges::includes(wrong, inner) || inner.empty()) continue;
    return told("labels differ at places {} alone, the last of each rank's part of the sequence of {}",
                fmt::join(wrong, ", "), rows[0].expected.size());
  }
  return {};
}

/// Of scores over gathered columns: the label of rank 0's row of the same place.
Answer labels_without_offset(const CauseInputs& inputs) {
  const std::vector<LabelRow> rows = label_rows(inputs);
  std::map<std::size_t, double> of_rank_0;
  for (const LabelRow& row : rows) {
    if (row.expected.size() != 1) return {};
    if (row.rank == 0) of_rank_0[row.place] = row.expected[0];
  }
  std::size_t wrong = 0;
  for (const LabelRow& row : rows) {
    const auto found = of_rank_0.find(row.place);
    if (row.rank == 0 ? row.actual[0] != row.expected[0] : found == of_rank_0.end() || row.actual[0] != found->second)
      return {};
    wrong += row.actual[0] != row.expected[0];
  }
  if (rows.empty() || wrong < 2) return {};
  // Labels that repeat, as classes do, are those of rank 0 by chance.
  std::set<double> values;
  for (const LabelRow& row : rows) values.insert(row.expected[0]);
  if (values.size() != rows.size()) return {};
  return told("on every rank but 0 the labels are those of rank 0's rows, {} in all", wrong);
}

/// How many of the step's rows hold something else of that name, and how many there are.
std::pair<std::size_t, std::size_t> rows_that_differ(const CauseInputs& inputs) {
  const std::string& where = inputs.difference.divergence.where;
  const auto expected = rows_by_sample(*inputs.reference, Phase::inputs, where);
  std::size_t wrong = 0, all = 0;
  for (const auto& [id, row] : rows_by_sample(*inputs.cell, Phase::inputs, where)) {
    const auto found = expected.find(id);
    if (found == expected.end()) continue;
    ++all;
    wrong += found->second != row;
  }
  return {wrong, all};
}

/// Do rows that hold the same agree in their scores and losses? Else it is not what some rows hold that makes the difference. Nothing where no row tells.
std::optional<bool> others_agree(const CauseInputs& inputs) {
  constexpr double kBeyondRounding = 1e-3;
  const std::string& where = inputs.difference.divergence.where;
  bool told = false;
  const auto held_a = rows_by_sample(*inputs.reference, Phase::inputs, where), held_b = rows_by_sample(*inputs.cell, Phase::inputs, where);
  for (const auto& [phase, name] : {std::pair(Phase::loss, "row_losses"), {Phase::scores, "energies"}}) {
    const auto made_a = rows_by_sample(*inputs.reference, phase, name), made_b = rows_by_sample(*inputs.cell, phase, name);
    for (const auto& [id, row] : made_b) {
      const auto expected = made_a.find(id), same_a = held_a.find(id), same_b = held_b.find(id);
      if (expected == made_a.end() || same_a == held_a.end() || same_b == held_b.end() || same_a->second != same_b->second) continue;
      if (expected->second.size() != row.size()) continue;
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (std::abs(row[i] - expected->second[i]) > kBeyondRounding * std::max(1.0, std::abs(expected->second[i]))) return false;
        told = true;
      }
    }
  }
  return told ? std::optional(true) : std::nullopt;
}

/// Some rows beside others that are right, in themselves and in what was made of them.
Answer row_content(const CauseInputs& inputs) {
  const Divergence& it = inputs.difference.divergence;
  const auto [wrong, all] = rows_that_differ(inputs);
  if (wrong == 0 || wrong == all || others_agree(inputs) != std::optional(true)) return {};
  return told(kFits, "{} of sample {} are not the reference's: {}", it.where, it.sample.value_or(-1),
              expected_found(it.expected, it.actual));
}

/// Rows of one rank alone hold something else than the reference's rows of the same samples, where other ranks' rows agree.
Answer content_of_one_rank(const CauseInputs& inputs) {
  if (others_agree(inputs) == std::optional(false)) return {};
  const std::string& where = inputs.difference.divergence.where;
  const auto expected = rows_by_sample(*inputs.reference, Phase::inputs, where);
  std::vector<std::size_t> wrong_ranks;
  std::size_t wrong = 0, of_wrong = 0, right_elsewhere = 0;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    StepOfRun alone;
    alone.ranks = {inputs.cell->ranks[rank]};
    std::size_t own_wrong = 0, own = 0;
    for (const auto& [id, row] : rows_by_sample(alone, Phase::inputs, where)) {
      const auto found = expected.find(id);
      if (found == expected.end()) return {};
      ++own;
      own_wrong += found->second != row;
    }
    if (own_wrong == 0) right_elsewhere += own;
    else wrong_ranks.push_back(rank), wrong = own_wrong, of_wrong = own;
  }
  if (wrong_ranks.size() != 1 || right_elsewhere == 0) return {};
  return of_rank(told("{} of {} of the rows of rank {} are not the reference's {} of the same samples; all {} rows of "
                      "the other ranks are",
                      wrong, of_wrong, wrong_ranks.front(), where, right_elsewhere),
                 wrong_ranks);
}

Answer average_of_weights_differs(const CauseInputs& inputs) {
  const Divergence& it = inputs.difference.divergence;
  std::string how;
  if (inputs.cell) {
    const auto own = average_step({*inputs.cell, pointer_to(inputs.cell_before), inputs.forced ? inputs.forced->state.get() : nullptr});
    if (own && own->residual <= 1) how = fmt::format("; it is {} times the old average and {} times the parameter", short_number(own->decay), short_number(1 - own->decay));
  }
  return told(kExact,
              "the average of {} does not follow the parameters as the reference's does: {}{}; the parameters "
              "themselves do not differ before it",
              it.where, expected_found(it.expected, it.actual), how);
}

Answer evaluated_samples_differ(const CauseInputs& inputs) {
  const auto rows = evaluated_rows_differ(*inputs.reference, *inputs.cell, false, 0);
  if (!rows || rows->divergence.kind != DivergenceKind::missing) return {};
  return told("{}: {} is evaluated by the reference, and {} by the run", rows->divergence.where,
              rows->divergence.expected, rows->divergence.actual);
}

/// The number is made of each rank's own part: the mean of the ranks' means, the norm of its parts of the gradient, or
/// something else.
Answer metric_of_own_part(const CauseInputs& inputs) {
  constexpr double kSame = 1e-5;
  const std::string& name = inputs.difference.divergence.where;
  const auto found = other_metric(*inputs.reference, *inputs.cell, name);
  if (!found) return {};
  const auto is = [&](std::size_t rank, double value) {
    return std::abs(found->of_ranks[rank] - value) <= kSame * std::abs(value);
  };
  double means = 0;
  std::size_t ranks = 0;
  std::vector<double> norms;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    const Record* rows =
        found->rows.empty() ? nullptr : find_record(inputs.cell->ranks[rank], Phase::evaluation, found->rows);
    const auto values = rows ? values_of(*rows) : std::nullopt;
    if (values && !values->empty())
      means += std::accumulate(values->begin(), values->end(), 0.0) / static_cast<double>(values->size()), ++ranks;
    double squares = 0;
    for (const Record& part : rank < inputs.cell->parts.size() ? inputs.cell->parts[rank] : std::vector<Record>{})
      if (part.phase == Phase::reduced_gradients && part.has_stats) squares += part.stats.norm * part.stats.norm;
    norms.push_back(std::sqrt(squares));
  }
  if (ranks > 1 && is(0, means / static_cast<double>(ranks)))
    return made("mean-of-means", kExact,
                "{} is the mean of the ranks' means of {}, {}; the mean over all samples is {}", name, found->rows,
                short_number(found->of_ranks[0]), short_number(found->mean));
  bool of_norms = norms.size() == found->of_ranks.size();
  for (std::size_t rank = 0; of_norms && rank < norms.size(); ++rank)
    of_norms = norms[rank] > 0 && is(rank, norms[rank]);
  if (of_norms)
    return made("norm-of-own-shard", kExact, "{} is on each rank the norm of its own parts of the gradient: {:.4g}",
                name, fmt::join(norms, ", "));
  if (!found->rows.empty()) return {};
  return made("local-statistics", kFits,
              "{} is another one on each rank, {:.6g}, and neither a mean of these nor their sum is the "
              "reference's: each takes its own samples",
              name, fmt::join(found->of_ranks, ", "));
}

}  // namespace

std::span<const Hypothesis> input_hypotheses() {
  static constexpr Hypothesis kTable[] = {
      {"labels-shifted-at-shard-edge", kInInputs, kRuns, kExact, labels_shifted_at_shard_edge},
      {"label-offset", kInInputs, kRuns, kExact, labels_without_offset},
      {"sample-content", kInInputs, kRuns, kFits, row_content},
      {"sample-content", kInInputs, kRanks, kFits, content_of_one_rank},
      {"average-of-weights-differs", in(Phase::averaged_weights), kNothing, kExact, average_of_weights_differs},
      {"evaluated-samples-differ", kInEvaluation, kRuns, kExact, evaluated_samples_differ},
      {"mean-of-means norm-of-own-shard local-statistics", kInEvaluation, kRuns, kExact, metric_of_own_part},
  };
  return kTable;
}

}  // namespace lockstep::causes
