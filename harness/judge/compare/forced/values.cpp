#include "harness/judge/compare/forced/values.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "harness/base/numbers.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/trace/record.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep {
namespace {

std::vector<double> whole_values(const Record& record, const std::string& run_dir) {
  if (auto values = is_floating(record.dtype) ? values_of(record) : std::nullopt) return *values;
  throw TraceError(fmt::format("{}: step {}: {} {} is {}, and only floating-point values can be compared by value",
                               run_dir, record.step, name_of(record.phase), record.name, name_of(record.dtype)));
}

bool kept_whole(const Record& record) { return values_of(record).has_value(); }

/// Rows of one record of scores, over columns of these ids.
void add_rows(const Record& block, const std::vector<int64_t>& columns, std::size_t rank,
              const StepOfRun& step, const std::string& run_dir, Scores& scores) {
  const auto width = static_cast<std::size_t>(block.shape[1]);
  if (block.ids.size() != static_cast<std::size_t>(block.shape[0]) || columns.size() != width) {
    throw TraceError(
        fmt::format("{}: step {}, rank {}: {} of {} rows and {} columns with {} row ids and {} column ids",
                    run_dir, step.step, rank, block.name, block.shape[0], width, block.ids.size(),
                    columns.size()));
  }
  const std::vector<double> values = whole_values(block, run_dir);
  for (std::size_t row = 0; row < block.ids.size(); ++row) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * width);
    scores.rows.push_back(
        {block.ids[row], static_cast<int>(rank), {begin, begin + static_cast<std::ptrdiff_t>(width)}});
  }
}

/// Scores of all ranks; nothing if a rank did not keep rows, ids and columns. Micro-steps after the first
/// ("energies.1") belong to them where their columns are those of the first: classes, or candidates made for
/// each row. In-batch candidates of another micro-step are other ones, and its rows stay missing.
std::optional<Scores> kept_scores(const StepOfRun& step, const std::string& run_dir, std::string_view name) {
  Scores scores;
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    std::map<std::string, const Record*> columns, blocks;  // by what stands behind the name
    for (const Record& record : step.ranks[rank].records) {
      if (record.phase != Phase::scores || !kept_whole(record)) continue;
      if (record.name.starts_with("columns") && record.dtype == DType::int64) {
        columns.emplace(record.name.substr(std::string_view("columns").size()), &record);
      } else if (record.name.starts_with(name) && record.shape.size() == 2) {
        blocks.emplace(record.name.substr(name.size()), &record);
      }
    }
    if (!columns.contains("") || !blocks.contains("")) return std::nullopt;
    scores.columns.push_back(whole_numbers_of(*columns.at("")));
    for (const auto& [micro_step, block] : blocks) {
      const auto own = columns.find(micro_step);
      if (own == columns.end() || whole_numbers_of(*own->second) != scores.columns.back()) continue;
      add_rows(*block, scores.columns.back(), rank, step, run_dir, scores);
    }
  }
  return scores;
}

/// Hands out positions of equal ids one after the other; the last again when they run out.
class Occurrences {
 public:
  void add(int64_t id, std::size_t position) { positions_[id].push_back(position); }
  /// Position of the k-th occurrence, or nothing.
  std::optional<std::size_t> at(int64_t id, std::size_t k) const {
    const auto found = positions_.find(id);
    if (found == positions_.end()) return std::nullopt;
    return found->second[std::min(k, found->second.size() - 1)];
  }

 private:
  std::unordered_map<int64_t, std::vector<std::size_t>> positions_;
};

/// One row against its reference row.
void compare_row(const Scores& reference, const ScoreRow& expected, const Scores& other,
                 const ScoreRow& row, ScoreDifference& total, std::set<int>& ranks_that_differ) {
  const std::vector<int64_t>& columns = reference.columns[static_cast<std::size_t>(expected.rank)];
  const std::vector<int64_t>& own = other.columns[static_cast<std::size_t>(row.rank)];
  Occurrences places;
  for (std::size_t j = 0; j < columns.size(); ++j) places.add(columns[j], j);
  std::unordered_map<int64_t, std::size_t> seen;
  std::set<std::size_t> matched;
  int64_t extra = 0;
  for (std::size_t j = 0; j < own.size(); ++j) {
    const auto place = places.at(own[j], seen[own[j]]++);
    if (!place || !matched.insert(*place).second) {
      ++extra;
      continue;
    }
    const double gap = distance(expected.values[*place], row.values[j]);
    ++total.compared;
    total.sum += gap;
    if (gap <= total.largest && total.compared > 1) continue;
    total.largest = gap;
    total.row_id = row.row_id;
    total.column_id = own[j];
    total.rank = row.rank;
    total.expected = expected.values[*place];
    total.actual = row.values[j];
  }
  const auto missing = static_cast<int64_t>(columns.size() - matched.size());
  if (missing > 0 || extra > 0) ranks_that_differ.insert(row.rank);
  if (missing + extra <= total.missing_columns + total.extra_columns) return;
  total.expected_columns = std::ssize(columns);
  total.actual_columns = std::ssize(own);
  total.missing_columns = missing;
  total.extra_columns = extra;
  total.columns_rank = row.rank;
}

}  // namespace

double distance(double a, double b) {
  if (same_bits(a, b) || (std::isnan(a) && std::isnan(b))) return 0;
  const double gap = std::abs(a - b);
  return std::isnan(gap) ? std::numeric_limits<double>::infinity() : gap;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double gap = distance(a[i], b[i]);
    squares += gap * gap;
  }
  return std::sqrt(squares);
}

double norm(const std::vector<double>& values) { return std::sqrt(dot(values, values)); }

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

double term_size(const NamedTensor& gradient, const ForcedValues& values) {
  const double own = norm(gradient.values);
  if (const NamedTensor* terms = find_tensor(values.term_sums, gradient.name)) return std::max(own, norm(terms->values));
  std::vector<double> sums(gradient.values.size(), 0);
  for (const std::vector<NamedTensor>& rank : values.local) {
    const NamedTensor* local = find_tensor(rank, gradient.name);
    if (!local || local->values.size() != sums.size()) continue;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += std::abs(local->values[i]) / static_cast<double>(values.local.size());
    }
  }
  return std::max(own, norm(sums));
}

double whole_norm(const std::vector<NamedTensor>& tensors) {
  double whole = 0;
  for (const NamedTensor& tensor : tensors) whole = std::hypot(whole, norm(tensor.values));
  return whole;
}

const NamedTensor* find_tensor(const std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

std::optional<NamedTensor> whole_tensor(const Record& record) {
  if (!is_floating(record.dtype)) return std::nullopt;
  auto values = values_of(record);
  if (!values) return std::nullopt;
  return NamedTensor{record.name, record.shape, std::move(*values), epsilon_of(record.dtype), !record.replicated};
}

std::vector<NamedTensor> mean_of_local(const ForcedValues& values) {
  std::vector<NamedTensor> mean;
  // Dividing rounds as the reduction does; multiplying by 1 / ranks would not.
  const double ranks = values.reduced_by_sum ? 1 : static_cast<double>(values.local.size());
  for (const std::vector<NamedTensor>& rank : values.local) {
    for (const NamedTensor& tensor : rank) {
      auto place = std::ranges::find(mean, tensor.name, &NamedTensor::name);
      if (place == mean.end()) {
        mean.push_back(tensor);
        const NamedTensor* reduced = find_tensor(values.gradients, tensor.name);
        mean.back().may_be_shard = reduced && reduced->may_be_shard;
        for (double& value : mean.back().values) value /= ranks;
        continue;
      }
      if (place->shape != tensor.shape) continue;
      for (std::size_t i = 0; i < tensor.values.size(); ++i) place->values[i] += tensor.values[i] / ranks;
    }
  }
  return mean;
}

static Snapshot state_in(const StepRecords& rank0, std::initializer_list<Phase> phases) {
  Snapshot snapshot;
  for (const Record& record : rank0.records) {
    if (std::ranges::find(phases, record.phase) == phases.end()) continue;
    if (record.name == "updates") {
      const auto count = values_of(record);
      if (record.is_scalar) snapshot.updates = record.value;
      if (count && count->size() == 1) snapshot.updates = count->front();
    }
    if (auto tensor = whole_tensor(record)) snapshot.tensors.push_back(std::move(*tensor));
  }
  return snapshot;
}

std::optional<double> relative_distance(const KnownState& a, const KnownState& b) {
  if (!a || !b) return std::nullopt;
  double gap = 0, size = 0;
  for (const NamedTensor& expected : a->tensors) {
    const NamedTensor* actual = find_tensor(b->tensors, expected.name);
    const bool is_moment = expected.name.find('/') != std::string::npos;
    if (!actual || actual->values.size() != expected.values.size() || is_moment) continue;
    gap = std::hypot(gap, distance(expected.values, actual->values));
    size = std::hypot(size, norm(expected.values));
  }
  return size > 0 ? std::optional(gap / size) : std::nullopt;
}

KnownState snapshot_of(const StepRecords& rank0) {
  Snapshot kept = state_in(rank0, {Phase::snapshot});
  return kept.tensors.empty() ? nullptr : std::make_shared<const Snapshot>(std::move(kept));
}

KnownState state_before(const StepOfRun& step, const std::optional<StepOfRun>& before) {
  Snapshot kept = state_in(step.ranks[0], {Phase::snapshot});
  if (kept.tensors.empty() && before && before->step == step.step - 1) {
    kept = state_in(before->ranks[0], {Phase::parameters, Phase::optimizer_state});
  }
  if (kept.tensors.empty()) return nullptr;
  // A tracer that counts no updates makes one at each step: the reference's own recomputed update shows whether it does.
  if (!kept.updates && step.step >= 0) kept.updates = static_cast<double>(step.step);
  return std::make_shared<const Snapshot>(std::move(kept));
}

namespace {

/// A number of the rank's loss; rank 0's where that is alike on all and rank 0 alone has written it.
std::optional<double> loss_scalar(const StepOfRun& step, std::size_t rank, const char* name) {
  const auto of = [name](const StepRecords& records, bool of_all) -> const Record* {
    const auto found = std::ranges::find_if(records.records, [&](const Record& record) {
      return record.phase == Phase::loss && record.is_scalar && record.name == name && (!of_all || record.replicated);
    });
    return found == records.records.end() ? nullptr : &*found;
  };
  const Record* record = of(step.ranks[rank], false);
  if (!record) record = of(step.ranks[0], true);
  return record ? std::optional(record->value) : std::nullopt;
}

/// What stands in phase loss beside the loss itself.
void take_of_loss(const Record& record, RankLoss& to) {
  constexpr std::string_view kTerm = "loss/", kWeight = "weight/";
  if (record.is_scalar) {
    if (record.name.starts_with(kTerm)) to.terms[record.name.substr(kTerm.size())] = record.value;
    if (record.name.starts_with(kWeight)) to.weights[record.name.substr(kWeight.size())] = record.value;
    return;
  }
  const std::pair<std::string_view, std::vector<double> RankLoss::*> lists[] = {
      {"row_losses", &RankLoss::row_losses}, {"row_counts", &RankLoss::row_counts}, {"row_widths", &RankLoss::row_widths}};
  for (const auto& [name, list] : lists) {
    if (record.name != name) continue;
    if (auto values = values_of(record)) to.*list = std::move(*values);
    if (name == "row_losses") to.row_ids = record.ids;
  }
}

RankLoss rank_loss(const StepOfRun& step, std::size_t rank) {
  RankLoss found;
  for (const auto& [member, name] : {std::pair(&RankLoss::loss, "loss"), {&RankLoss::row_weight, "row_weight"},
                                     {&RankLoss::temperature, "temperature"}}) {
    if (const auto value = loss_scalar(step, rank, name)) found.*member = *value;
  }
  for (const Record* record : records_of(step.ranks[rank], Phase::loss)) take_of_loss(*record, found);
  // A tracer that names no rows has them in the order of its samples.
  if (found.row_ids.empty()) found.row_ids = sample_ids(step.ranks[rank]);
  if (found.row_ids.size() != found.row_losses.size()) found.row_ids.clear();
  return found;
}

/// Empty if a rank lacks values, or has a tensor twice (a gradient taken in parts).
std::vector<std::vector<NamedTensor>> local_gradients(const StepOfRun& step, const std::vector<int>& ranks) {
  std::vector<std::vector<NamedTensor>> by_rank;
  for (const int rank : ranks) {
    by_rank.emplace_back();
    for (const Record* record : records_of(step.ranks[static_cast<std::size_t>(rank)], Phase::local_gradients)) {
      std::optional<NamedTensor> tensor = whole_tensor(*record);
      if (!tensor || find_tensor(by_rank.back(), tensor->name)) return {};
      by_rank.back().push_back(std::move(*tensor));
    }
  }
  const bool any = std::ranges::any_of(by_rank, [](const auto& each) { return !each.empty(); });
  return any ? by_rank : std::vector<std::vector<NamedTensor>>{};
}

/// By rank; empty if one recorded none.
std::vector<std::vector<GradientPart>> gradient_parts(const StepOfRun& step, const std::vector<int>& ranks) {
  std::vector<std::vector<GradientPart>> by_rank;
  for (const int rank : ranks) {
    by_rank.emplace_back();
    for (const Record* record : records_of(step.ranks[static_cast<std::size_t>(rank)], Phase::gradient_parts)) {
      const std::size_t slash = record->name.find('/');
      if (slash == std::string::npos) continue;
      GradientPart part;
      part.part = record->name.substr(0, slash);
      part.parameter = record->name.substr(slash + 1);
      if (record->has_stats) part.norm = record->stats.norm, part.dot = record->dot;
      if (auto tensor = whole_tensor(*record)) part.values = std::move(*tensor), part.values.name = part.parameter;
      by_rank.back().push_back(std::move(part));
    }
    if (by_rank.back().empty()) return {};
  }
  return by_rank;
}

/// Gradients of parameters that rank 0 does not hold: those of another pipeline stage.
void add_of_other_stages(const StepOfRun& step, ForcedValues& values) {
  for (std::size_t rank = 1; rank < step.ranks.size(); ++rank) {
    for (const Record* record : records_of(step.ranks[rank], Phase::reduced_gradients)) {
      auto tensor = find_tensor(values.gradients, record->name) ? std::nullopt : whole_tensor(*record);
      if (!tensor) continue;
      values.gradients.push_back(std::move(*tensor));
      values.other_stages = true;
    }
  }
}

}  // namespace

double working_epsilon(const TrainingFacts& facts, double recorded) {
  return std::max(recorded, facts.working_epsilon);
}

ForcedValues forced_values(const StepOfRun& step, const std::string& run_dir, const ScoreSpec& scores) {
  ForcedValues values;
  values.step = step.step;
  for (const Record& record : step.ranks[0].records) {
    if (record.phase == Phase::gradient_norm && record.is_scalar) values.gradient_norm = record.value;
    if (record.phase == Phase::control && record.name == "learning_rate") values.learning_rate = record.value;
    for (const auto& [phase, list] : {std::pair(Phase::parameters, &values.parameters),
                                      {Phase::optimizer_state, &values.optimizer_state},
                                      {Phase::applied_gradients, &values.applied}}) {
      if (auto tensor = record.phase == phase ? whole_tensor(record) : std::nullopt)
        list->push_back(std::move(*tensor));
    }
    const bool gradient = record.phase == Phase::reduced_gradients;
    if (!gradient && record.phase != Phase::term_sums) continue;
    if (!kept_whole(record)) {
      throw TraceError(fmt::format("{}: step {}: {} {} is not complete; this is not a trace of a forced run",
                                   run_dir, step.step, name_of(record.phase), record.name));
    }
    (gradient ? values.gradients : values.term_sums)
        .push_back({record.name, record.shape, whole_values(record, run_dir), epsilon_of(record.dtype), !record.replicated});
  }
  if (values.gradients.empty()) {
    throw TraceError(fmt::format("{}: step {} has no reduced gradients; this is not a trace of a forced run",
                                 run_dir, step.step));
  }
  values.epsilon = values.working_epsilon = values.gradients.front().epsilon;
  add_of_other_stages(step, values);
  values.local_ranks = ranks_reduced_together(step);
  values.micro_steps = micro_steps_of(step);
  values.local = local_gradients(step, values.local_ranks);
  values.parts = gradient_parts(step, values.local_ranks);
  values.reduced_by_sum = step.declared && step.declared->gradient_reduction == "sum";
  double sum = 0;
  bool on_all = true;
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    values.losses.push_back(rank_loss(step, rank));
    sum += values.losses.back().loss;
    on_all = on_all && loss_scalar(step, rank, "loss");
  }
  if (on_all) values.loss = sum / static_cast<double>(step.ranks.size());
  values.scores = kept_scores(step, run_dir, scores.record);
  return values;
}

ScoreDifference score_difference(const Scores& reference, const Scores& other) {
  Occurrences places;
  for (std::size_t i = 0; i < reference.rows.size(); ++i) places.add(reference.rows[i].row_id, i);
  ScoreDifference total;
  std::unordered_map<int64_t, std::size_t> seen;
  std::set<int> ranks_that_differ;
  int64_t matched = 0;
  for (const ScoreRow& row : other.rows) {
    const auto place = places.at(row.row_id, seen[row.row_id]++);
    if (!place) continue;
    ++matched;
    compare_row(reference, reference.rows[*place], other, row, total, ranks_that_differ);
  }
  total.missing_rows = std::max<int64_t>(0, std::ssize(reference.rows) - matched);
  total.every_rank_differs = ranks_that_differ.size() == other.columns.size();
  return total;
}

/// Places of the `count` lowest scores of a row but for its own column's, in ascending order.
static std::vector<std::size_t> lowest(const ScoreRow& row, const std::vector<int64_t>& columns, int64_t count) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < row.values.size(); ++i) {
    if (columns[i] != row.row_id) order.push_back(i);
  }
  const auto before = [&](std::size_t x, std::size_t y) {
    return std::pair(row.values[x], columns[x]) < std::pair(row.values[y], columns[y]);
  };
  const auto end = order.begin() + std::min(static_cast<std::ptrdiff_t>(count), std::ssize(order));
  std::partial_sort(order.begin(), end, order.end(), before);
  order.erase(end, order.end());
  std::ranges::sort(order);
  return order;
}

int64_t row_taken_otherwise(const Scores& a, const Scores& b, const std::function<int64_t(int64_t columns)>& taken) {
  for (std::size_t i = 0; i < std::min(a.rows.size(), b.rows.size()); ++i) {
    const ScoreRow &x = a.rows[i], &y = b.rows[i];
    const std::vector<int64_t>& columns = a.columns[static_cast<std::size_t>(x.rank)];
    if (x.values.size() != y.values.size() || x.values.size() != columns.size()) continue;
    const int64_t count = taken(std::ssize(columns));
    if (count > 0 && lowest(x, columns, count) != lowest(y, columns, count)) return x.row_id;
  }
  return -1;
}

double largest_score(const Scores& scores) {
  double largest = 0;
  for (const ScoreRow& row : scores.rows) {
    for (double value : row.values) {
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    }
  }
  return largest;
}

}  // namespace lockstep
