#include "harness/verdict/compare/contradictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "harness/verdict/compare/step_records.h"
#include "harness/verdict/evidence/parts.h"

namespace lockstep {
namespace {

/// In words the first statistic that two have otherwise; empty if they agree. Norms may be summed in another order and type; a tenth of
/// a per cent is more than that.
std::string statistics_apart(const TensorStats& said, const TensorStats& other) {
  constexpr double kNormsApart = 1e-3;
  const auto apart = [](const char* what, auto x, auto y) { return fmt::format("{} {} and {}", what, x, y); };
  if (said.nonfinite != other.nonfinite) return apart("the counts of non-finite values", said.nonfinite, other.nonfinite);
  const bool sums_overflow = !std::isfinite(said.norm) || !std::isfinite(other.norm);
  if (!sums_overflow && std::abs(said.norm - other.norm) > kNormsApart * std::max(std::abs(said.norm), std::abs(other.norm))) return apart("the norms", said.norm, other.norm);
  if (said.min != other.min) return apart("the minima", said.min, other.min);
  if (said.max != other.max) return apart("the maxima", said.max, other.max);
  return "";
}

bool keeps_values(const Record& record) {
  if (record.payload.empty()) return false;
  int64_t elements = 1;
  for (const int64_t extent : record.shape) elements *= extent;
  return record.payload.size() == static_cast<std::size_t>(elements) * size_of(record.dtype);
}

bool is_tensor(const Record& record) {
  return !record.is_scalar && record.phase != Phase::samples && record.phase != Phase::random && record.phase != Phase::collective;
}

/// What one record says against itself or its step; empty if nothing.
std::string against_itself(const Record& record, const std::unordered_set<int64_t>& samples) {
  const bool of_rows = record.phase == Phase::scores || record.phase == Phase::loss || record.phase == Phase::inputs;
  if (of_rows && !samples.empty()) {
    const auto strange = std::ranges::find_if_not(record.ids, [&](int64_t id) { return samples.contains(id); });
    if (strange != record.ids.end()) return fmt::format("row {} is of sample {}, which is not among the rank's samples of the step", strange - record.ids.begin(), *strange);
  }
  if (!record.has_stats || !keeps_values(record)) return "";
  TensorStats of_values = tensor_stats({record.payload.data(), record.dtype, record.shape, {}});
  if (size_of(record.dtype) < 8 && record.dtype != DType::int32) {  // the file holds statistics of these in float32
    of_values.min = static_cast<float>(of_values.min);
    of_values.max = static_cast<float>(of_values.max);
  }
  const std::string apart = statistics_apart(record.stats, of_values);
  return apart.empty() ? "" : "recorded and of its values, " + apart;
}

/// What two records of one tensor say against each other; empty if nothing.
std::string against_each_other(const Record& a, const Record& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return "";
  const bool values = keeps_values(a) && keeps_values(b), same_values = values && a.payload == b.payload;
  if (a.stats.hash != b.stats.hash) return same_values ? "the values are the same and the hashes are not" : "";
  if (values && !same_values) return "the hashes are the same and the values are not";
  if (!a.ids.empty() && !b.ids.empty() && a.ids != b.ids) return "the hashes are the same and the sample ids of the rows are not";
  const std::string apart = a.has_stats && b.has_stats ? statistics_apart(a.stats, b.stats) : "";
  return apart.empty() ? "" : "the hashes are the same, " + apart;
}

}  // namespace

void Contradictions::note(int64_t step, std::size_t rank, const Record& record, const std::string& what) {
  if (found_++ == 0) first_ = fmt::format("step {}, rank {}, {}, {}: {}", step, rank, name_of(record.phase), record.name, what);
}

void Contradictions::look(const StepOfRun& a, const StepOfRun& b, const std::string& name_a, const std::string& name_b) {
  for (const auto& [step, name] : {std::pair(&a, &name_a), std::pair(&b, &name_b)}) {
    for (std::size_t rank = 0; rank < step->ranks.size(); ++rank) {
      std::unordered_set<int64_t> samples;
      for (const Record* record : records_of(step->ranks[rank], Phase::samples)) samples.insert(record->ids.begin(), record->ids.end());
      const auto look_at = [&](const Record& record) {
        const std::string what = is_tensor(record) ? against_itself(record, samples) : "";
        if (!what.empty()) note(step->step, rank, record, fmt::format("in {}, {}", *name, what));
      };
      std::ranges::for_each(step->ranks[rank].records, look_at);
      if (rank < step->parts.size()) std::ranges::for_each(step->parts[rank], look_at);
    }
  }
  if (a.ranks.size() != b.ranks.size()) return;
  for (std::size_t rank = 0; rank < a.ranks.size(); ++rank) {
    const std::vector<Record>&own = a.ranks[rank].records, &others = b.ranks[rank].records;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const Record& record = own[i];
      if (!is_tensor(record)) continue;
      // Both runs record in one order as a rule.
      const bool at_same_place = i < others.size() && others[i].phase == record.phase && others[i].name == record.name;
      const Record* const other = at_same_place ? &others[i] : find_record(b.ranks[rank], record.phase, record.name);
      const std::string what = other != nullptr ? against_each_other(record, *other) : "";
      if (!what.empty()) note(a.step, rank, record, what);
    }
    // What is put together has a hash of its own: those of the parts say what the tracer saw.
    for (std::size_t i = 0; rank < a.parts.size() && i < a.parts[rank].size(); ++i) {
      const Record& part = a.parts[rank][i];
      const bool at_same_place = rank < b.parts.size() && i < b.parts[rank].size() && b.parts[rank][i].phase == part.phase && b.parts[rank][i].name == part.name;
      const Record* const other = at_same_place ? &b.parts[rank][i] : find_part(b, rank, part.phase, part.name);
      const bool same_place = other != nullptr && *other->placement == *part.placement;
      const std::string what = same_place ? against_each_other(part, *other) : "";
      if (!what.empty()) note(a.step, rank, part, what);
    }
  }
}

std::string Contradictions::sentence() const {
  if (found_ == 0) return "";
  return fmt::format(" A problem of the traces, which contradict themselves: {}{}.", first_, found_ > 1 ? fmt::format(" (and {} more)", found_ - 1) : "");
}

}  // namespace lockstep
