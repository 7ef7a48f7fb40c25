#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/evidence/replays.h"
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

std::optional<Cause> labels_shifted_at_shard_edge(const CauseInputs& inputs) {
  const std::vector<LabelRow> rows = label_rows(inputs);
  if (rows.empty() || rows[0].expected.size() < 2) return std::nullopt;
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
    return made("labels-shifted-at-shard-edge", kExact,
                fmt::format("labels differ at places {} alone, the last of each rank's part of the sequence of {}", fmt::join(wrong, ", "), rows[0].expected.size()));
  }
  return std::nullopt;
}

/// Of scores over gathered columns: the label of rank 0's row of the same place.
std::optional<Cause> labels_without_offset(const CauseInputs& inputs) {
  const std::vector<LabelRow> rows = label_rows(inputs);
  std::map<std::size_t, double> of_rank_0;
  for (const LabelRow& row : rows) {
    if (row.expected.size() != 1) return std::nullopt;
    if (row.rank == 0) of_rank_0[row.place] = row.expected[0];
  }
  std::size_t wrong = 0;
  for (const LabelRow& row : rows) {
    const auto found = of_rank_0.find(row.place);
    if (row.rank == 0 ? row.actual[0] != row.expected[0] : found == of_rank_0.end() || row.actual[0] != found->second) return std::nullopt;
    wrong += row.actual[0] != row.expected[0];
  }
  if (rows.empty() || wrong < 2) return std::nullopt;
  // Labels that repeat, as classes do, are those of rank 0 by chance.
  std::set<double> values;
  for (const LabelRow& row : rows) values.insert(row.expected[0]);
  if (values.size() != rows.size()) return std::nullopt;
  return made("label-offset", kExact, fmt::format("on every rank but 0 the labels are those of rank 0's rows, {} in all", wrong));
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
std::optional<Cause> row_content(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::inputs || !inputs.reference || !inputs.cell) return std::nullopt;
  const Divergence& told = inputs.difference.divergence;
  const auto [wrong, all] = rows_that_differ(inputs);
  if (wrong == 0 || wrong == all || others_agree(inputs) != std::optional(true)) return std::nullopt;
  return made("sample-content", kFits,
              fmt::format("{} of sample {} are not the reference's: {}", told.where, told.sample.value_or(-1), expected_found(told.expected, told.actual)));
}

/// Rows of one rank alone hold something else than the reference's rows of the same samples, where other ranks' rows agree.
std::optional<Cause> content_of_one_rank(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::inputs || !inputs.reference || !inputs.cell || others_agree(inputs) == std::optional(false)) return std::nullopt;
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
      if (found == expected.end()) return std::nullopt;
      ++own;
      own_wrong += found->second != row;
    }
    if (own_wrong == 0) right_elsewhere += own;
    else wrong_ranks.push_back(rank), wrong = own_wrong, of_wrong = own;
  }
  if (wrong_ranks.size() != 1 || right_elsewhere == 0) return std::nullopt;
  return of_rank(made("sample-content", kFits,
                      fmt::format("{} of {} of the rows of rank {} are not the reference's {} of the same samples; all {} rows of the other ranks are", wrong, of_wrong,
                                  wrong_ranks.front(), where, right_elsewhere)),
                 wrong_ranks);
}

constexpr Rule kInputRules[] = {labels_shifted_at_shard_edge, labels_without_offset, row_content, content_of_one_rank};

std::optional<Cause> average_of_weights_differs(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::averaged_weights) return std::nullopt;
  const Divergence& told = inputs.difference.divergence;
  std::string how;
  if (inputs.cell) {
    const auto own = average_step({*inputs.cell, pointer_to(inputs.cell_before), inputs.forced ? inputs.forced->state.get() : nullptr});
    if (own && own->residual <= 1) how = fmt::format("; it is {} times the old average and {} times the parameter", short_number(own->decay), short_number(1 - own->decay));
  }
  return made("average-of-weights-differs", kExact,
              fmt::format("the average of {} does not follow the parameters as the reference's does: {}{}; the parameters themselves do not differ before it", told.where,
                          expected_found(told.expected, told.actual), how));
}

constexpr Rule kAverageRules[] = {average_of_weights_differs};

std::optional<Cause> evaluated_samples_differ(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::evaluation || !inputs.reference || !inputs.cell) return std::nullopt;
  const auto rows = evaluated_rows_differ(*inputs.reference, *inputs.cell, false, 0);
  if (!rows || rows->divergence.kind != DivergenceKind::missing) return std::nullopt;
  return made("evaluated-samples-differ", kExact, fmt::format("{}: {} is evaluated by the reference, and {} by the run", rows->divergence.where, rows->divergence.expected, rows->divergence.actual));
}

constexpr Rule kEvaluationRules[] = {evaluated_samples_differ};

}  // namespace

std::span<const Rule> input_rules() { return kInputRules; }
std::span<const Rule> average_rules() { return kAverageRules; }
std::span<const Rule> evaluation_rules() { return kEvaluationRules; }

// Causes of a wrong loss from what the trainer's own function gives for single rows: how ranks combine them, which they leave out, and what is taken over
// a rank's own rows where the reference takes it over all.
namespace {

using RowIds = std::vector<int64_t>;

/// The loss, or the slope of the gradient, which tells rows apart where all lose the same.
using Channel = Measured MeasuredRows::*;
constexpr Channel kLoss = &MeasuredRows::loss, kSlope = &MeasuredRows::slope;

const char* name_of(Channel channel) { return channel == kLoss ? "loss" : "gradient"; }

using ChannelRule = std::optional<Cause> (*)(const CauseInputs& inputs, Channel channel);

template <ChannelRule rule>
std::optional<Cause> of_either(const CauseInputs& inputs) {
  auto cause = rule(inputs, kLoss);
  return cause ? cause : rule(inputs, kSlope);
}

bool near_value(double a, double b, double tolerance) { return std::abs(a - b) <= tolerance * std::max({std::abs(a), std::abs(b), 1e-12}); }

/// Of some rows: the sum of their values by weight, and of their weights.
struct Total {
  double value = 0, weight = 0;
  double mean() const { return value / weight; }
};

Total total_of(const RowValues& rows, std::span<const int64_t> ids) {
  Total total;
  for (const int64_t id : ids) {
    const RowValues::Row& row = rows.rows.at(id);
    total.value += row.weight * row.value;
    total.weight += row.weight;
  }
  return total;
}

/// The step, if the reference's rows are known and the ranks of the cell hold them once each.
struct Combined {
  const RowsApart& apart;
  Channel channel;
  RowValues rows;
  Total all;
  std::vector<Total> ranks;
  double own(std::size_t rank) const { return (apart.cell[rank].*channel).own; }
  double world() const { return static_cast<double>(apart.cell.size()); }
  /// A sum counts rows as they are; a mean's divides them by their weights.
  double unit() const { return rows.is_sum ? 1 : 1 / all.weight; }
};

std::optional<Combined> combined(const CauseInputs& inputs, Channel channel) {
  const Phase phase = inputs.difference.phase;
  if (phase != Phase::loss && phase != Phase::local_gradients && phase != Phase::reduced_gradients) return std::nullopt;
  if (!inputs.rows || inputs.rows->reference.empty() || inputs.rows->cell.empty()) return std::nullopt;
  auto apart = taken_apart(inputs.rows->reference.front().*channel);
  if (!apart.rows) return std::nullopt;
  Combined found{*inputs.rows, channel, std::move(*apart.rows), {}, {}};
  std::set<int64_t> seen;
  for (const MeasuredRows& rank : found.apart.cell) {
    for (const int64_t id : rank.own_ids) {
      if (!found.rows.rows.contains(id) || !seen.insert(id).second) return std::nullopt;
    }
    found.ranks.push_back(total_of(found.rows, rank.own_ids));
    found.all.value += found.ranks.back().value;
    found.all.weight += found.ranks.back().weight;
  }
  if (seen.size() != found.rows.rows.size()) return std::nullopt;
  // A function that reduces gradients itself has the same on every rank.
  const auto is_first = [&](const MeasuredRows& rank) { return near_value((rank.*channel).own, found.own(0), found.rows.tolerance); };
  if (channel == kSlope && found.ranks.size() > 1 && std::ranges::all_of(found.apart.cell, is_first)) return std::nullopt;
  return found;
}

/// Is every rank's loss one factor times that?
std::optional<double> common_factor(const Combined& step, const std::function<double(std::size_t)>& of_rank) {
  std::optional<double> factor;
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const double ratio = step.own(r) / of_rank(r);
    if (!std::isfinite(ratio) || ratio == 0 || (factor && !near_value(ratio, *factor, 10 * step.rows.tolerance))) return std::nullopt;
    factor = factor.value_or(ratio);
  }
  return factor;
}

/// Does every rank count its rows as the reference does, but for a factor that they share?
bool counts_rows_alike(const Combined& step) {
  const auto factor = common_factor(step, [&](std::size_t r) { return step.ranks[r].value; });
  return factor && (step.ranks.size() > 1 || near_value(*factor, step.unit(), 10 * step.rows.tolerance));
}

bool is_one_of(double value, std::initializer_list<double> known, double tolerance) {
  return std::ranges::any_of(known, [&](double each) { return near_value(value, each, tolerance); });
}

std::optional<Cause> mean_of_means_apart(const CauseInputs& inputs, Channel channel) {
  const auto step = combined(inputs, channel);
  if (!step || step->ranks.size() < 2 || counts_rows_alike(*step)) return std::nullopt;
  const auto factor = common_factor(*step, [&](std::size_t r) { return step->ranks[r].mean(); });
  const double whole = step->rows.is_sum ? step->all.weight : 1;
  if (!factor || !is_one_of(*factor, {whole, whole / step->world()}, 10 * step->rows.tolerance)) return std::nullopt;
  const auto by_weight = [](const Total& a, const Total& b) { return a.weight < b.weight; };
  const auto [fewest, most] = std::ranges::minmax_element(step->ranks, by_weight);
  return made("mean-of-means", kExact,
              fmt::format("replays of single rows: each rank's {} is the mean over its own rows, which count {} to {} % of the batch's weight, and ranks count alike", name_of(channel),
                          short_number(100 * fewest->weight / step->all.weight), short_number(100 * most->weight / step->all.weight)));
}

/// Is the value the sum of the means of so many runs of rows that follow each other, of whatever lengths?
bool is_sum_of_means(const RowValues& rows, std::span<const int64_t> ids, std::size_t parts, double value, double size) {
  if (parts == 1) return std::abs(total_of(rows, ids).mean() - value) <= rows.tolerance * size;
  for (std::size_t first = 1; first + parts <= ids.size() + 1; ++first) {
    if (is_sum_of_means(rows, ids.subspan(first), parts - 1, value - total_of(rows, ids.first(first)).mean(), size)) return true;
  }
  return false;
}

/// Which factor makes every rank's value from the sum of its micro-steps' means; nothing if none does.
std::optional<double> factor_of_means(const Combined& step, std::size_t micro_steps, std::initializer_list<double> factors) {
  for (const double factor : factors) {
    bool all = true;
    for (std::size_t r = 0; all && r < step.ranks.size(); ++r) {
      const double value = step.own(r) / factor;
      all = is_sum_of_means(step.rows, step.apart.cell[r].own_ids, micro_steps, value, std::max(std::abs(value), 1e-12));
    }
    if (all) return factor;
  }
  return std::nullopt;
}

std::optional<Cause> micro_steps_apart(const CauseInputs& inputs, Channel channel) {
  constexpr std::size_t kMostMicroSteps = 4;  // of more, some cut fits by chance
  const auto step = combined(inputs, channel);
  const auto micro_steps = static_cast<std::size_t>(std::max<int64_t>(1, inputs.cell_facts.accumulation));
  if (!step || step->rows.is_sum || step->rows.tolerance > 1e-6 || micro_steps < 2 || micro_steps > kMostMicroSteps || counts_rows_alike(*step)) return std::nullopt;
  const double count = static_cast<double>(micro_steps), world = step->world();
  const auto text = [&](const char* how) {
    return fmt::format("replays of single rows: each rank's {} is the {} of the means of its {} micro-steps, whose rows count unequally", name_of(channel), how, micro_steps);
  };
  if (factor_of_means(*step, micro_steps, {1 / count, 1 / count / world})) return made("micro-steps-weighted-alike", kExact, text("mean"));
  if (factor_of_means(*step, micro_steps, {1, 1 / world})) return made("accumulation-not-scaled", kExact, text("sum"));
  return std::nullopt;
}

/// Rows that a rank may have left out: one, those at an end, or every second.
std::vector<RowIds> kept_rows(const RowIds& ids) {
  std::vector<RowIds> kept;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    RowIds without = ids;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    kept.push_back(std::move(without));
    const auto at = ids.begin() + static_cast<std::ptrdiff_t>(i);
    kept.emplace_back(ids.begin(), at);
    kept.emplace_back(at, ids.end());
  }
  for (const std::size_t from : {0, 1}) {
    RowIds every_second;
    for (std::size_t i = from; i < ids.size(); i += 2) every_second.push_back(ids[i]);
    kept.push_back(std::move(every_second));
  }
  std::erase_if(kept, [&](const RowIds& each) { return each.size() == ids.size(); });
  return kept;
}

/// How many rows the rank's loss has, if it is made of fewer than it holds at that factor.
std::optional<std::size_t> rows_kept(const Combined& step, std::size_t rank, double factor) {
  const double own = step.own(rank), tolerance = 10 * step.rows.tolerance;
  for (const RowIds& kept : kept_rows(step.apart.cell[rank].own_ids)) {
    const Total total = total_of(step.rows, kept);
    const bool at_their_weight = near_value(own, factor * total.value, tolerance);
    const bool as_a_mean = total.weight > 0 && near_value(own, factor * step.ranks[rank].weight * total.mean(), tolerance);
    if (at_their_weight || as_a_mean) return kept.size();
  }
  return std::nullopt;
}

std::optional<Cause> rows_left_out_apart(const CauseInputs& inputs, Channel channel) {
  const auto step = combined(inputs, channel);
  // Of many sets of rows one fits by chance where losses are known to few digits.
  if (!step || step->rows.tolerance > 1e-6 || counts_rows_alike(*step)) return std::nullopt;
  for (const double ranks : {step->world(), 1.0, 1 / step->world()}) {
    const double factor = ranks * step->unit();
    std::vector<std::string> wrong;
    bool fits = true;
    for (std::size_t r = 0; fits && r < step->ranks.size(); ++r) {
      if (near_value(step->own(r), factor * step->ranks[r].value, 10 * step->rows.tolerance)) continue;
      const auto kept = rows_kept(*step, r, factor);
      fits = kept.has_value();
      if (kept) wrong.push_back(fmt::format("rank {} has {} of its {} rows", r, *kept, step->apart.cell[r].own_ids.size()));
    }
    if (!fits || wrong.empty()) continue;
    return made("rows-left-out", 0.95, fmt::format("replays of single rows: the {} of {}{}", name_of(channel), wrong.front(), wrong.size() > 1 ? fmt::format(", and so of {} ranks", wrong.size()) : ""));
  }
  return std::nullopt;
}

/// Of the same rows the second has that factor times what the first has.
bool same_numbers(const std::map<int64_t, double>& a, const std::map<int64_t, double>& b, double factor, double room) {
  return a.size() == b.size() && std::ranges::equal(a, b, [&](const auto& x, const auto& y) { return x.first == y.first && std::abs(factor * x.second - y.second) <= room; });
}

/// Does the function, of the same rows, give what the reference's gives? A loss that is divided by the rows of all ranks gives W times as much.
bool agrees_on_same_rows(const Measured& reference, const Measured& rank, double world, double room) {
  if (!rank.together) return false;
  return std::ranges::any_of(std::array{1.0, world, 1 / world}, [&](double factor) {
    return std::abs(factor * *reference.together - *rank.together) <= room && same_numbers(reference.singles, rank.singles, factor, room) &&
           same_numbers(reference.pairs, rank.pairs, factor, room);
  });
}

/// The reference's loss couples rows. Of the same rows every rank's function gives what the reference's does, and of the ranks' own rows another loss: what
/// couples them does not go beyond a rank.
std::optional<Cause> taken_over_own_rows(const CauseInputs& inputs, Channel channel) {
  if (inputs.difference.phase != Phase::loss || !inputs.rows || inputs.rows->reference.empty() || inputs.rows->cell.size() < 2) return std::nullopt;
  const Measured& reference = inputs.rows->reference.front().*channel;
  if (!taken_apart(reference).is_coupled) return std::nullopt;
  const double tolerance = reference.epsilon < 1e-10 ? 1e-9 : 1e-5, size = std::max(1.0, std::abs(*reference.together));
  // Ranks that weigh their rows wrongly look alike where some hold more.
  const auto has_as_many = [&](const MeasuredRows& rank) { return rank.own_ids.size() == inputs.rows->cell.front().own_ids.size(); };
  if (!std::ranges::all_of(inputs.rows->cell, has_as_many)) return std::nullopt;
  const auto world = static_cast<double>(inputs.rows->cell.size());
  double sum = 0;
  for (const MeasuredRows& rank : inputs.rows->cell) {
    if (!agrees_on_same_rows(reference, rank.*channel, world, tolerance * size)) return std::nullopt;
    // A gather of equal rows has each of them several times: the loss sees it, and a contrastive gradient does not.
    if (channel == kSlope && !agrees_on_same_rows(inputs.rows->reference.front().loss, rank.loss, world, tolerance * size)) return std::nullopt;
    sum += (rank.*channel).own;
  }
  const double mean = sum / world;
  for (const double loss : {sum, mean}) {
    if (std::abs(loss - *reference.together) <= 1e3 * tolerance * size) return std::nullopt;
  }
  const bool alone_is_nothing = std::ranges::all_of(reference.singles, [&](const auto& row) { return std::abs(row.second) <= tolerance * size; });
  const std::string text = fmt::format("replays of single rows, pairs and the whole batch give the reference's {} on every rank, and the ranks' own rows give {} where the batch has {}",
                                       name_of(channel), short_number(mean), short_number(*reference.together));
  // Where the tracer says which encoder makes candidates, they are what couples rows.
  const auto is_candidates = [](const DeclaredParameters& each) { return each.role.find("candidate") != std::string::npos; };
  const bool has_candidates = inputs.reference && inputs.reference->declared && std::ranges::any_of(inputs.reference->declared->parameters, is_candidates);
  if (has_candidates) return made("local-negatives", kExact, text);
  if (alone_is_nothing) return made("local-negatives", kExact, text + "; a row alone gives 0: the loss contrasts rows");
  return made("local-statistics", 0.9, text);
}

/// Do all rows count alike, or each what it counts in the reference?
bool weighs_alike_or_as(const RowValues& found, const RowValues& expected) {
  constexpr double kSame = 1e-6;
  const auto is_as_expected = [&](const auto& row) { return near_value(row.second.weight, expected.rows.at(row.first).weight, kSame); };
  return std::ranges::all_of(found.rows, [](const auto& row) { return near_value(row.second.weight, 1, kSame); }) || std::ranges::all_of(found.rows, is_as_expected);
}

bool same_rows(const RowValues& a, const RowValues& b) {
  return std::ranges::equal(a.rows, b.rows, {}, [](const auto& row) { return row.first; }, [](const auto& row) { return row.first; });
}

/// Rows that count most are whole and lose the same; the others, which are padded, lose something else.
std::optional<Cause> mask_ignored_apart(const CauseInputs& inputs, Channel channel) {
  if (inputs.difference.phase != Phase::loss || !inputs.rows || inputs.rows->reference.empty()) return std::nullopt;
  const auto expected = taken_apart(inputs.rows->reference.front().*channel).rows;
  if (!expected || expected->is_sum) return std::nullopt;
  double most = 0;
  for (const auto& [id, row] : expected->rows) most = std::max(most, row.weight);
  std::size_t whole = 0, padded = 0;
  for (const MeasuredRows& rank : inputs.rows->cell) {
    const auto found = taken_apart(rank.*channel).rows;
    if (!found || found->is_sum || !same_rows(*found, *expected) || !weighs_alike_or_as(*found, *expected)) return std::nullopt;
    whole = padded = 0;
    // Where padding counts in the divisor alone, a padded row gives its share of the width.
    const auto is_share = [&](const auto& row) { return near_value(found->rows.at(row.first).value, row.second.value * row.second.weight / most, 10 * expected->tolerance); };
    if (std::ranges::all_of(expected->rows, is_share)) return std::nullopt;
    for (const auto& [id, row] : expected->rows) {
      const bool is_whole = near_value(row.weight, most, 1e-6), is_same = near_value(found->rows.at(id).value, row.value, 10 * expected->tolerance);
      if (is_whole != is_same) return std::nullopt;
      (is_whole ? whole : padded) += 1;
    }
  }
  if (whole < 2 || padded < 2) return std::nullopt;
  return made("mask-ignored", 0.9,
              fmt::format("replays of single rows: the {} rows that count most in the reference give the same {}, and the {} that count less give another", whole, name_of(channel), padded));
}

constexpr Rule kRowsApartRules[] = {of_either<mean_of_means_apart>, of_either<micro_steps_apart>, of_either<rows_left_out_apart>, of_either<taken_over_own_rows>,
                                    of_either<mask_ignored_apart>};

}  // namespace

std::span<const Rule> rows_apart_rules() { return kRowsApartRules; }

namespace {

/// Ranks whose function gives another number of the same rows; nothing where that is not known.
std::optional<std::vector<std::size_t>> apart_in(const RowsApart& rows, Channel channel) {
  const Measured& reference = rows.reference.front().*channel;
  if (!reference.together || !std::isfinite(*reference.together)) return std::nullopt;
  std::vector<std::size_t> apart;
  for (std::size_t rank = 0; rank < rows.cell.size(); ++rank) {
    const Measured& own = rows.cell[rank].*channel;
    if (!own.together) return std::nullopt;
    if (!agrees_on_same_rows(reference, own, static_cast<double>(rows.cell.size()), 1e-5 * std::max(1.0, std::abs(*reference.together)))) apart.push_back(rank);
  }
  // A gather of equal rows has each of them W times, which a loss that couples rows must see.
  if (apart.size() == rows.cell.size() && taken_apart(reference).is_coupled) return std::nullopt;
  return apart;
}

}  // namespace

std::string functions_seen(const CauseInputs& inputs) {
  if (!inputs.rows || inputs.rows->reference.empty() || inputs.rows->cell.empty()) return "";
  for (const Channel channel : {kLoss, kSlope}) {
    const auto apart = apart_in(*inputs.rows, channel);
    if (!apart) return "";
    if (apart->empty()) continue;
    if (apart->size() == inputs.rows->cell.size()) return fmt::format("of the same rows every rank's function gives another {} than the reference's", name_of(channel));
    return fmt::format("of the same rows the function gives the reference's {} on other ranks, and another one on rank {}", name_of(channel), fmt::join(*apart, ", "));
  }
  return "of the same rows every rank's function gives the reference's loss and gradient";
}

}  // namespace lockstep::causes
