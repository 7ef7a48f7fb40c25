#include "harness/judge/compare/exact_runs.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "harness/base/json.h"
#include "harness/base/numbers.h"
#include "harness/judge/compare/forced/free.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/record.h"

namespace lockstep {
namespace {

/// One row of a step as the rank that had it saw it.
struct Row {
  int64_t position = 0, id = 0;
  int rank = 0;
  uint64_t inputs = 0, scores = 0, gradient = 0;
  double loss = 0;
};

std::vector<int64_t> integers(const StepRecords& rank, const char* name) {
  const Record* record = find_record(rank, Phase::loss, name);
  if (record == nullptr || record->dtype != DType::int64) return {};
  std::vector<int64_t> values(record->payload.size() / sizeof(int64_t));
  std::memcpy(values.data(), record->payload.data(), values.size() * sizeof(int64_t));
  return values;
}

std::vector<double> losses_of(const StepRecords& rank) {
  const Record* record = find_record(rank, Phase::loss, "row_losses");
  return record == nullptr ? std::vector<double>{} : values_of(*record).value_or(std::vector<double>{});
}

/// In the order of the whole batch; empty if a rank's records of its rows do not fit together.
std::vector<Row> rows_of(const StepOfRun& step) {
  std::vector<Row> rows;
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const StepRecords& rank = step.ranks[r];
    const Record* named = find_record(rank, Phase::loss, "row_gradients");
    const std::vector<int64_t> positions = integers(rank, "row_positions"), inputs = integers(rank, "row_inputs"),
                               scores = integers(rank, "row_scores"),
                               gradients = integers(rank, "row_gradients");
    const std::vector<double> losses = losses_of(rank);
    if (named == nullptr) continue;
    const std::size_t own = positions.size();
    if (inputs.size() != own || scores.size() != own || gradients.size() != own || losses.size() != own || named->ids.size() != own) return {};
    for (std::size_t k = 0; k < own; ++k) {
      rows.push_back({positions[k], named->ids[k], static_cast<int>(r), static_cast<uint64_t>(inputs[k]), static_cast<uint64_t>(scores[k]),
                      static_cast<uint64_t>(gradients[k]), losses[k]});
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& x, const Row& y) { return x.position < y.position; });
  return rows;
}

/// By parameter: the sum over rows of the hashes of its gradients.
std::vector<uint64_t> tensor_sums(const StepOfRun& step) {
  std::vector<uint64_t> sums;
  for (const StepRecords& rank : step.ranks) {
    const std::vector<int64_t> own = integers(rank, "row_gradients_by_tensor");
    sums.resize(std::max(sums.size(), own.size()), 0);
    for (std::size_t p = 0; p < own.size(); ++p) sums[p] += static_cast<uint64_t>(own[p]);
  }
  return sums;
}

using RowPair = std::pair<Row, Row>;

class StepComparison {
 public:
  StepComparison(const StepOfRun& a, const StepOfRun& b, const ScoreSpec& spec, Compared& compared)
      : a_(a), b_(b), spec_(spec), compared_(compared), world_size_(static_cast<int>(b.ranks.size())) {
    const std::vector<Row> of_a = rows_of(a), of_b = rows_of(b);
    count_a_ = of_a.size();
    count_b_ = of_b.size();
    for (std::size_t k = 0; k < std::min(count_a_, count_b_); ++k) rows_.emplace_back(of_a[k], of_b[k]);
  }

  /// Phase by phase, in the order in which a step goes.
  std::optional<Difference> first() const {
    if (auto found = places()) return found;
    for (const Phase phase : {Phase::samples, Phase::scores, Phase::loss, Phase::local_gradients})
      if (auto found = rows_at(phase)) return found;
    for (const Phase phase : phases_in_order()) {
      if (auto found = alike_at(phase)) return found;
    }
    return std::nullopt;
  }

 private:
  /// `what`: which of a row's hashes differs; `phase`: where in the step that lies.
  Difference at_row(const RowPair& rows, Phase what, Phase phase, const std::string& where,
                    const std::string& before, const std::string& now) const {
    const Row &expected = rows.first, &actual = rows.second;
    Difference found = difference_at(b_, phase, actual.rank, where, DivergenceKind::bits, before, now);
    found.divergence.row = actual.position;
    found.divergence.sample = actual.id;
    found.divergence.sentence.pop_back();
    found.divergence.sentence += fmt::format(", in row {} (sample {}), which rank {} had", actual.position, actual.id,
                                             actual.rank);
    const auto is_further = [&](const RowPair& each) { return each.first.position > expected.position && differ(each, what); };
    if (const auto more = std::ranges::count_if(rows_, is_further); more > 0) {
      found.divergence.sentence += fmt::format("; so do {}", counted(more, "further row"));
    }
    found.divergence.sentence += ".";
    return found;
  }

  static bool differ(const RowPair& rows, Phase phase) {
    const auto& [x, y] = rows;
    if (phase == Phase::samples) return x.inputs != y.inputs;
    if (phase == Phase::scores) return x.scores != y.scores;
    if (phase == Phase::loss) return !same_bits(x.loss, y.loss);
    return x.gradient != y.gradient;
  }

  /// The same samples at the same places of the batch.
  std::optional<Difference> places() const {
    for (const auto& [x, y] : rows_) {
      if (x.position == y.position && x.id == y.id) continue;
      Difference found = difference_at(b_, Phase::samples, y.rank, "samples", DivergenceKind::order,
                                       fmt::format("sample {} in row {}", x.id, x.position),
                                       fmt::format("sample {} in row {}", y.id, y.position));
      found.divergence.row = y.position;
      found.divergence.sample = y.id;
      return found;
    }
    if (count_a_ == count_b_) return std::nullopt;
    return difference_at(b_, Phase::samples, kRankUnknown, "samples", DivergenceKind::missing,
                         counted(static_cast<int64_t>(count_a_), "row"), counted(static_cast<int64_t>(count_b_), "row"));
  }

  std::optional<Difference> rows_at(Phase phase) const {
    if (!rows_.empty()) compared_.add(*kind_of(phase), b_.step);
    const auto found = std::ranges::find_if(rows_, [&](const RowPair& each) { return differ(each, phase); });
    if (found == rows_.end()) return std::nullopt;
    const auto& [x, y] = *found;
    const auto at = [&](Phase place, const std::string& where, uint64_t before, uint64_t now) {
      return at_row(*found, phase, place, where, "hash " + hex16(before), "hash " + hex16(now));
    };
    // What a row is made from comes before its scores and before those of the rows whose candidate it is.
    if (phase == Phase::samples) return at(Phase::scores, "inputs", x.inputs, y.inputs);
    if (phase == Phase::loss)
      return at_row(*found, phase, phase, "row_losses", exact_number(x.loss), exact_number(y.loss));
    if (phase == Phase::local_gradients) return at(phase, tensor_of_rows(), x.gradient, y.gradient);
    const std::string record(spec_.record), column(spec_.column);
    const int64_t expected = columns_of(a_.ranks[static_cast<std::size_t>(x.rank)], record),
                  actual = columns_of(b_.ranks[static_cast<std::size_t>(y.rank)], record);
    if (expected < 0 || actual < 0 || expected == actual) return at(phase, record, x.scores, y.scores);
    const auto text = [&](int64_t columns) { return counted(columns - spec_.own_columns, column) + " a row"; };
    Difference told = at_row(*found, phase, phase, record, text(expected), text(actual));
    told.divergence.kind = DivergenceKind::missing;
    return told;
  }

  /// The first parameter of which rows' gradients differ.
  std::string tensor_of_rows() const {
    const std::vector<uint64_t> sums_a = tensor_sums(a_), sums_b = tensor_sums(b_);
    const std::vector<const Record*> parameters = records_of(b_.ranks[0], Phase::reduced_gradients);
    for (std::size_t p = 0; p < std::min({sums_a.size(), sums_b.size(), parameters.size()}); ++p)
      if (sums_a[p] != sums_b[p]) return parameters[p]->name;
    return "gradient";
  }

  /// What all ranks hold alike, and what rank 0 evaluated: on each rank of B as on rank 0 of A.
  std::optional<Difference> alike_at(Phase phase) const {
    if (phase == Phase::snapshot || is_exact(phase)) return std::nullopt;
    for (const Record* record : records_of(a_.ranks[0], phase)) {
      std::vector<int> wrong;
      const Record* first = nullptr;
      for (int rank = 0; rank < (record->replicated ? world_size_ : 1); ++rank) {
        if (!record->replicated && phase != Phase::evaluation) continue;
        const Record* other = find_record(b_.ranks[static_cast<std::size_t>(rank)], phase, record->name);
        if (!other) continue;  // rank 0 alone writes what is no tensor
        if (const auto kind = kind_of(phase)) compared_.add(*kind, b_.step);
        const bool same =
            record->is_scalar ? same_bits(record->value, other->value) : record->stats.hash == other->stats.hash;
        if (same) continue;
        if (wrong.empty()) first = other;
        wrong.push_back(rank);
      }
      if (wrong.empty()) continue;
      return difference_at(b_, phase, first_or_all(wrong, b_), record->name, DivergenceKind::bits, value_text(*record),
                           value_text(*first));
    }
    return std::nullopt;
  }

  const StepOfRun &a_, &b_;
  const ScoreSpec& spec_;
  Compared& compared_;
  std::vector<RowPair> rows_;
  std::size_t count_a_ = 0, count_b_ = 0;
  int world_size_;
};

/// The first difference at one step, whatever the layouts: rows by their place in the whole batch, with sample, rank and tensor; then
/// what all ranks hold alike, on each rank of B against rank 0 of A. `before` is B's step before and may be null.
OwnFindings exact_finding(const StepOfRun& a, const StepOfRun& b, const StepOfRun* before, const ScoreSpec& scores,
                          Compared& compared) {
  OwnFindings found = own_findings(a, b, before, true, true, &compared);
  const std::optional<Difference> bits = StepComparison(a, b, scores, compared).first();
  if (!bits) return found;
  found.keep_earlier(bits);
  if (Divergence& first = found.difference->divergence; first.phase == bits->divergence.phase && !found.ledger) {
    // At the same place the row is what the rank's own records do not say.
    first.row = bits->divergence.row;
    first.sample = bits->divergence.sample;
  }
  return found;
}

/// Both runs began the step with the same bits, so that its values tell of a known mistake as those of a forced step do. Nothing
/// where either kept them in part: below trace level full.
std::optional<ForcedEvidence> evidence_at(StepPairs& pairs, const CauseInputs& around, const StepRules& rules) {
  const StepOfRun &a = *around.reference, &b = *around.cell;
  if (a.step < 0 || !keeps_gradients(a) || !keeps_gradients(b)) return std::nullopt;
  const std::vector<ForcedValues> no_repeats;
  // A closed form rounds: a factor that is no power of two, each row's own backward pass.
  return evidence_of_step({a, pairs.a().dir(), b, pairs.b().dir(), around.cell_before, no_repeats,
                           state_before(a, around.reference_before), state_before(b, around.cell_before), false, true},
                          rules);
}

}  // namespace

bool both_exact(const RunConfig* reference, const RunConfig* cell) {
  return reference != nullptr && cell != nullptr && reference->arithmetic == Arithmetic::exact &&
         cell->arithmetic == Arithmetic::exact;
}

Comparison compare_exact_runs(StepPairs& pairs, const ConfigPair& configs) {
  const StepRules rules = rules_of(pairs.a(), pairs.b(), configs);
  Mechanism result;
  Compared compared;
  while (pairs.next()) {
    OwnFindings found =
        exact_finding(pairs.step_a(), pairs.step_b(), pointer_to(pairs.before_b()), rules.scores(), compared);
    result.compared_steps = pairs.compared();
    if (!found.difference) continue;
    result.facts = compared.facts(result.compared_steps, found.difference->divergence);
    CauseInputs around = inputs_at(pairs, *found.difference);
    around.ledger = std::move(found.ledger);
    around.forced = evidence_at(pairs, around, rules);
    if (auto skipped = pairs.skipped_step(around.difference)) around.difference.divergence = *std::move(skipped);
    return parted_at(std::move(around), pairs, rules, std::move(result));
  }
  result.compared_steps = pairs.compared();
  result.facts = compared.facts(result.compared_steps);
  agree_as_far(pairs, VerdictKind::identical,
               fmt::format("Identical in exact arithmetic: {} of {} agree with those of {} in every bit, row by row",
                           counted(result.compared_steps, "step"), counted(pairs.b().world_size(), "rank"),
                           counted(pairs.a().world_size(), "rank")),
               result);
  return {std::move(result), std::nullopt};
}

}  // namespace lockstep
