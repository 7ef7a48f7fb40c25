#include "harness/judge/compare/bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "harness/base/json.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/record.h"

namespace lockstep {
namespace {

using RecordList = std::vector<const Record*>;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// One rank's first difference, before the ranks are weighed against each other.
struct RankDifference {
  Phase phase = Phase::samples;
  int rank = 0;
  const Record* a = nullptr;  // null: only the other run has the record
  const Record* b = nullptr;
  DivergenceKind kind = DivergenceKind::bits;
  double relative = kInfinity;
};

/// Do two records tell of the same thing, whatever its value?
bool same_subject(const Record& a, const Record& b) {
  return a.phase == b.phase && a.name == b.name && a.is_scalar == b.is_scalar &&
         a.collective.op == b.collective.op && a.collective.group == b.collective.group;
}

bool same_form(const Record& a, const Record& b) { return a.dtype == b.dtype && a.shape == b.shape; }

bool same_value(const Record& a, const Record& b) {
  if (a.is_scalar) return same_bits(a.value, b.value);
  switch (a.phase) {
    case Phase::samples:
      return a.ids == b.ids;
    case Phase::random:
      return a.stats.hash == b.stats.hash && same_bits(a.value, b.value);
    case Phase::collective:
      return a.collective == b.collective;
    case Phase::gradient_parts:
      if (!std::isnan(a.dot) && !std::isnan(b.dot) && !same_bits(a.dot, b.dot)) return false;
      [[fallthrough]];
    default:
      return same_form(a, b) && a.stats.hash == b.stats.hash;
  }
}

bool is_observation(Phase phase) {
  return phase == Phase::snapshot || phase == Phase::evaluation || phase == Phase::term_sums;
}

/// A run that lacks it may only have been told to write less: levels above hash keep the columns' ids.
bool may_be_missing(const Record& record) {
  const bool of_optimizer = record.phase == Phase::optimizer_state || record.phase == Phase::applied_gradients ||
                            record.phase == Phase::averaged_weights || record.phase == Phase::inputs;
  const bool of_loss = record.phase == Phase::loss && record.name != "loss";
  return is_observation(record.phase) || of_optimizer || of_loss || (record.phase == Phase::random && is_of_a_generator(record.name)) ||
         (record.phase == Phase::scores && record.name.starts_with("columns"));
}

/// Does any rank record such a thing at this step: of tensors by parameter any of the phase, else that name?
bool records_kind(const StepOfRun& step, const Record& subject) {
  const bool by_name = subject.phase == Phase::random || subject.phase == Phase::control || subject.phase == Phase::loss ||
                       subject.phase == Phase::scores || subject.phase == Phase::inputs;
  const auto is_of_it = [&](const Record& each) {
    return each.phase == subject.phase && (!by_name || each.name == subject.name) &&
           is_buffer(each.name) == is_buffer(subject.name);
  };
  return std::ranges::any_of(step.ranks, [&](const StepRecords& rank) { return std::ranges::any_of(rank.records, is_of_it); });
}

const Record* of_subject(const RecordList& list, const Record& subject) {
  const auto found = std::ranges::find_if(list, [&](const Record* each) { return same_subject(*each, subject); });
  return found == list.end() ? nullptr : *found;
}

bool holds(const RecordList& list, const Record& subject) { return of_subject(list, subject) != nullptr; }

RecordList of_phase(const StepRecords& step, Phase phase) {
  RecordList list = records_of(step, phase);
  std::ranges::stable_sort(list, {}, [](const Record* record) { return place_of(record->phase, record->name); });
  return list;
}

DivergenceKind kind_of(const Record& a, const Record& b) {
  if (a.phase == Phase::samples) return a.ids.size() == b.ids.size() ? DivergenceKind::value : DivergenceKind::shape;
  if (a.is_scalar) return DivergenceKind::value;
  if (!same_form(a, b)) return DivergenceKind::shape;
  if (a.phase == Phase::collective &&
      (a.collective.reduction != b.collective.reduction || a.collective.root != b.collective.root)) {
    return DivergenceKind::value;
  }
  return DivergenceKind::bits;
}

/// How large the difference of two records is against the whole phase of that rank.
double relative_of(const Record& a, const Record& b, const RecordList& phase_a) {
  if (a.is_scalar) {
    const double difference = std::abs(a.value - b.value);
    const double size = std::max(std::abs(a.value), std::numeric_limits<double>::min());
    return std::isnan(difference) ? kInfinity : difference / size;
  }
  if (is_exact(a.phase)) return kInfinity;
  if (a.phase == Phase::collective) return a.collective.shape == b.collective.shape ? kUnknown : kInfinity;
  if (!same_form(a, b)) return kInfinity;
  if (!a.has_stats || !b.has_stats) return kUnknown;
  if (a.stats.nonfinite != b.stats.nonfinite) return kInfinity;
  double squares = 0;
  for (const Record* each : phase_a) squares += each->has_stats ? each->stats.norm * each->stats.norm : 0;
  if (const auto x = values_of(a), y = values_of(b); x && y) {
    double sum = 0;
    for (std::size_t i = 0; i < x->size(); ++i) sum += ((*x)[i] - (*y)[i]) * ((*x)[i] - (*y)[i]);
    if (std::isfinite(sum)) return sum == 0 ? 0 : std::sqrt(sum / squares);
  }
  // Statistics say how large it is at least: a turned sign leaves every norm as it was.
  const double least = apart(a.stats, b.stats) / std::sqrt(squares);
  return least > rounding_bound(0) ? least : kUnknown;
}

std::optional<RankDifference> first_in_lists(const RecordList& a, const RecordList& b, int rank) {
  RankDifference found;
  found.rank = rank;
  const std::size_t common = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < common; ++i) {
    found.phase = a[i]->phase;
    found.a = a[i];
    found.b = b[i];
    if (same_subject(*a[i], *b[i])) {
      if (same_value(*a[i], *b[i])) continue;
      found.kind = kind_of(*a[i], *b[i]);
      found.relative = relative_of(*a[i], *b[i], a);
      return found;
    }
    const bool a_later = holds(b, *a[i]), b_later = holds(a, *b[i]);
    found.kind = a_later && b_later ? DivergenceKind::order : DivergenceKind::missing;
    if (!a_later) found.b = nullptr;
    if (a_later && !b_later) found.a = nullptr;
    return found;
  }
  if (a.size() == b.size()) return std::nullopt;
  found.a = a.size() > common ? a[common] : nullptr;
  found.b = b.size() > common ? b[common] : nullptr;
  found.phase = (found.a ? found.a : found.b)->phase;
  found.kind = DivergenceKind::missing;
  return found;
}

bool all_equal(const StepRecords& a, const StepRecords& b) {
  return std::ranges::equal(a.records, b.records, [](const Record& x, const Record& y) {
    return same_subject(x, y) && same_value(x, y);
  });
}

/// Takes out what both have and differ in without being different: see ComparedBits. `same_loss`: the means agree.
void leave_out_own_ways(RecordList& a, RecordList& b, bool of_any_trainer, bool same_loss) {
  const RecordList whole_a = a, whole_b = b;
  const auto count_of = [](const RecordList& list, const Record& call) {
    return std::ranges::count_if(list, [&](const Record* each) { return each->name == call.name; });
  };
  std::set<std::string> tags;
  if (!a.empty() && a.front()->phase == Phase::collective) tags = tags_of_other_exchanges(a, b, !of_any_trainer);
  const auto is_own_way = [&](const RecordList& own, const RecordList& others) {
    return [&](const Record* each) {
      if (each->phase == Phase::collective) {
        if (of_any_trainer && count_of(own, *each) != count_of(others, *each)) return true;
        return tags.contains(each->collective.tag);
      }
      if (!of_any_trainer) return false;
      if (same_loss && each->phase == Phase::loss && each->is_scalar && each->name == "loss") return true;
      const Record* other = of_subject(others, *each);
      if (other != nullptr && each->is_scalar) return relative_of(*each, *other, {}) <= rounding_bound(0);
      return other != nullptr && is_in_shards(*each, *other);
    };
  };
  std::erase_if(a, is_own_way(whole_a, whole_b));
  std::erase_if(b, is_own_way(whole_b, whole_a));
}

std::optional<RankDifference> first_of_rank(const StepOfRun& of_a, const StepOfRun& of_b, std::size_t rank,
                                            const ComparedBits& compared, bool same_loss) {
  const StepRecords &a = of_a.ranks[rank], &b = of_b.ranks[rank];
  if (all_equal(a, b)) return std::nullopt;
  for (const Phase phase : phases_in_order()) {
    if (compared.exact_phases_only && !is_exact(phase)) continue;
    // What a gradient is made of shows why it differs, and is no difference of its own.
    if (phase == Phase::gradient_parts) continue;
    if (compared.joint_only && (is_of_one_rank(phase) || phase == Phase::collective)) continue;
    RecordList list_a = of_phase(a, phase), list_b = of_phase(b, phase);
    const RecordList whole_a = list_a, whole_b = list_b;
    const auto only_in = [&](const RecordList& other, const StepOfRun& run) {
      return [&](const Record* each) {
        if (holds(other, *each)) return false;
        return may_be_missing(*each) || (compared.of_any_trainer && !records_kind(run, *each));
      };
    };
    std::erase_if(list_a, only_in(whole_b, of_b));
    std::erase_if(list_b, only_in(whole_a, of_a));
    if (phase == Phase::collective || (compared.of_any_trainer && !is_exact(phase))) {
      leave_out_own_ways(list_a, list_b, compared.of_any_trainer, same_loss);
    }
    const auto name = [](const Record* each) -> const std::string& { return each->name; };
    const bool of_owners = compared.of_any_trainer && (phase == Phase::optimizer_state || phase == Phase::snapshot);
    if (of_owners && !std::ranges::equal(list_a, list_b, {}, name, name)) {  // owners first
      for (RecordList* list : {&list_a, &list_b}) std::ranges::stable_sort(*list, {}, name);
    }
    if (auto found = first_in_lists(list_a, list_b, static_cast<int>(rank))) return found;
  }
  // Where all else agrees the parts of gradients do not: no bit less was recorded of them.
  if (compared.exact_phases_only || compared.joint_only || compared.of_any_trainer) return std::nullopt;
  RecordList parts_a = of_phase(a, Phase::gradient_parts), parts_b = of_phase(b, Phase::gradient_parts);
  if (parts_a.empty() || parts_b.empty()) return std::nullopt;
  return first_in_lists(parts_a, parts_b, static_cast<int>(rank));
}

/// Of two kept payloads the first element that differs: its index and the value of one of them.
std::optional<std::string> first_element(const Record& a, const Record& b, bool of_a) {
  if (a.payload.empty() || a.payload.size() != b.payload.size() || !same_form(a, b)) return std::nullopt;
  const std::size_t size = size_of(a.dtype);
  for (std::size_t i = 0; i < a.payload.size(); i += size) {
    if (std::memcmp(&a.payload[i], &b.payload[i], size) == 0) continue;
    const auto values = values_of(of_a ? a : b);
    if (!values) return std::nullopt;
    const double value = (*values)[i / size];
    const std::string text =
        a.dtype == DType::float32 ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value);
    return fmt::format(", element {} of {}: {}", i / size, values->size(), text);
  }
  return std::nullopt;
}

std::string ids_text(const Record& mine, const Record& other) {
  for (std::size_t i = 0; i < mine.ids.size() && i < other.ids.size(); ++i) {
    if (mine.ids[i] != other.ids[i]) return fmt::format("sample {} in row {}", mine.ids[i], i);
  }
  return counted(std::ssize(mine.ids), "sample");
}

/// What one side has; `mine` is null if it has nothing.
std::string describe(const Record* mine, const Record* other, DivergenceKind kind, bool is_a) {
  if (mine == nullptr) return "nothing";
  if (kind == DivergenceKind::order) return mine->name;
  if (mine->phase == Phase::samples) return other ? ids_text(*mine, *other) : "samples";
  if (mine->is_scalar) return exact_number(mine->value);
  if (kind == DivergenceKind::shape) return form_text(*mine);
  if (mine->phase == Phase::random) {
    return fmt::format("hash {}, {} draws", hex16(mine->stats.hash), exact_number(mine->value));
  }
  if (mine->phase == Phase::collective) {
    const CollectiveRecord& it = mine->collective;
    if (kind == DivergenceKind::value)
      return fmt::format("reduction {}, root {}", it.reduction.empty() ? "none" : it.reduction, it.root);
    return fmt::format("in {}, out {}", hex16(it.hash_in), hex16(it.hash_out));
  }
  std::string text = value_text(*mine);
  if (other != nullptr)
    text += first_element(is_a ? *mine : *other, is_a ? *other : *mine, is_a).value_or("");
  return text;
}

Difference worded(const RankDifference& found, int64_t step, bool on_all, int world_size) {
  Difference result;
  result.phase = found.phase;
  result.relative = found.relative;
  Divergence& it = result.divergence;
  it.step = step;
  it.phase = name_of(found.phase);
  it.rank = on_all ? -1 : found.rank;
  it.where = (found.a ? found.a : found.b)->name;
  it.kind = found.kind;
  it.expected = describe(found.a, found.b, found.kind, true);
  it.actual = describe(found.b, found.a, found.kind, false);
  std::string what = it.where + ": " + expected_found(it.expected, it.actual);
  if (it.kind == DivergenceKind::missing) {
    what = it.where +
           (found.b == nullptr ? " is missing" : " is extra: the reference has none of that name");
  }
  if (it.kind == DivergenceKind::order)
    what = fmt::format("another order: {} where {} was expected", it.actual, it.expected);
  it.sentence =
      fmt::format("They first differ at step {}, {}, {}: {}.", step, it.phase, rank_text(it.rank, world_size), what);
  return result;
}

/// Do the means over ranks agree but for rounding?
bool same_mean_loss(const StepOfRun& a, const StepOfRun& b) {
  const std::optional<double> expected = mean_loss(a), actual = mean_loss(b);
  return expected && actual && std::abs(*expected - *actual) <= rounding_bound(0) * std::max(1.0, std::abs(*expected));
}

/// A collective that all ranks entered with equal bits in both runs and that gave other bits: communication
/// itself, and so the origin of whatever was computed from it later in the step. `first`: what differs first, or null.
/// `moves`: of calls that add nothing alone.
std::optional<Difference> faulty_collective(const StepOfRun& a, const StepOfRun& b, const RankDifference* first,
                                            bool moves = false) {
  const auto world_size = a.ranks.size();
  std::vector<RecordList> lists_a, lists_b;
  const auto adds = [](const Record* call) {
    return call->collective.op != "all_gather" && call->collective.op != "broadcast";
  };
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    lists_a.push_back(of_phase(a.ranks[rank], Phase::collective));
    lists_b.push_back(of_phase(b.ranks[rank], Phase::collective));
    for (RecordList* list : {&lists_a[rank], &lists_b[rank]})
      if (moves) std::erase_if(*list, adds);
    if (lists_a[rank].size() != lists_a[0].size() || lists_b[rank].size() != lists_a[0].size()) return std::nullopt;
  }
  for (std::size_t i = 0; i < lists_a[0].size(); ++i) {
    bool inputs_agree = true;
    std::optional<std::size_t> changed;
    for (std::size_t rank = 0; rank < world_size; ++rank) {
      const CollectiveRecord &in_a = lists_a[rank][i]->collective, &in_b = lists_b[rank][i]->collective;
      if (!same_subject(*lists_a[rank][i], *lists_b[rank][i])) return std::nullopt;
      inputs_agree = inputs_agree && in_a.hash_in == in_b.hash_in;
      if (!changed && in_a.hash_out != in_b.hash_out) changed = rank;
    }
    if (!inputs_agree || !changed) continue;
    const int rank = static_cast<int>(*changed);
    const Record* record = lists_b[*changed][i];
    // Records of a rank lie in the order in which they were written: only what came later can stem from this.
    const Record* of_first = first != nullptr && first->rank == rank ? first->b : nullptr;
    if (of_first != nullptr && of_first < record) return std::nullopt;
    return worded({Phase::collective, rank, lists_a[*changed][i], record, DivergenceKind::bits, kUnknown}, a.step,
                  false, static_cast<int>(world_size));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Difference> moved_otherwise(const StepOfRun& a, const StepOfRun& b) {
  return faulty_collective(a, b, nullptr, true);
}

std::string value_text(const Record& record) {
  if (record.is_scalar) return exact_number(record.value);
  const std::string hash = "hash " + hex16(record.stats.hash);
  return record.has_stats ? hash + ", norm " + exact_number(record.stats.norm) : hash;
}

bool is_in_shards(const Record& a, const Record& b) {
  constexpr Phase kOfParameters[] = {Phase::snapshot,          Phase::local_gradients, Phase::reduced_gradients,
                                     Phase::applied_gradients, Phase::parameters,      Phase::optimizer_state,
                                     Phase::averaged_weights};
  if (std::ranges::find(kOfParameters, a.phase) == std::end(kOfParameters) || a.is_scalar) return false;
  return a.hashed != b.hashed || (a.shape != b.shape && !(a.replicated && b.replicated));
}

std::optional<Difference> first_difference(const StepOfRun& a, const StepOfRun& b, ComparedBits compared) {
  const std::size_t world_size = a.ranks.size();
  const bool same_loss = compared.of_any_trainer && same_mean_loss(a, b);
  std::vector<RankDifference> found;
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    if (auto one = first_of_rank(a, b, rank, compared, same_loss)) found.push_back(std::move(*one));
  }
  if (found.empty()) return compared.joint_only ? faulty_collective(a, b, nullptr) : std::nullopt;
  const auto first =
      // Of equal places the first stays: the lowest rank.
      std::ranges::min_element(found, {}, [](const RankDifference& each) {
        return place_of(each.phase, (each.a ? each.a : each.b)->name);
      });
  if (auto collective = is_exact(first->phase) ? std::nullopt : faulty_collective(a, b, &*first)) return collective;
  auto name = [](const RankDifference& each) { return (each.a ? each.a : each.b)->name; };
  const bool on_all =
      world_size > 1 && found.size() == world_size &&
      std::ranges::all_of(found, [&](const RankDifference& each) {
        return each.phase == first->phase && name(each) == name(*first) && each.kind == first->kind;
      });
  return worded(*first, a.step, on_all, static_cast<int>(world_size));
}

bool takes_alike(const StepOfRun& a, const StepOfRun& b) {
  const auto takes_all = [](const StepOfRun& step) {
    return std::ranges::all_of(records_of(step.ranks[0], Phase::applied_gradients), [&](const Record* each) {
      const Record* reduced = find_record(step.ranks[0], Phase::reduced_gradients, each->name);
      return reduced && reduced->stats.hash == each->stats.hash;
    });
  };
  if (!takes_all(a) && !takes_all(b)) return false;
  bool any = false;
  for (std::size_t rank = 0; rank < a.ranks.size(); ++rank) {
    const RecordList of_a = of_phase(a.ranks[rank], Phase::applied_gradients);
    if (of_a.size() != of_phase(b.ranks[rank], Phase::applied_gradients).size()) return false;
    for (const Record* each : of_a) {
      const Record* other = find_record(b.ranks[rank], each->phase, each->name);
      if (!other || (!same_value(*each, *other) && !(relative_of(*each, *other, of_a) <= rounding_bound(0)))) return false;
      any = true;
    }
  }
  return any;
}

bool is_of_one_rank(Phase phase) {
  return phase == Phase::scores || phase == Phase::loss || phase == Phase::gradient_parts || phase == Phase::local_gradients;
}

StepDifferences differences_of_step(const StepOfRun& a, const StepOfRun& b) {
  StepDifferences result;
  std::optional<Difference> first = first_difference(a, b, {.of_any_trainer = true});
  const bool of_one = first && (is_of_one_rank(first->phase) || (first->phase == Phase::collective && first->divergence.kind == DivergenceKind::bits));
  const auto has = [](const StepOfRun& step, Phase phase) { return !records_of(step.ranks[0], phase).empty(); };
  const bool shown = std::ranges::any_of(std::to_array({Phase::reduced_gradients, Phase::applied_gradients, Phase::parameters}),
                                         [&](Phase phase) { return has(a, phase) && has(b, phase); });
  if (!of_one || !shown) {
    result.counts = std::move(first);
    return result;
  }
  std::optional<Difference> joint = first_difference(a, b, {.of_any_trainer = true, .joint_only = true});
  // Averages and metrics are made of what was trained, not of what a rank holds.
  if (joint && place_of(joint->phase) <= place_of(Phase::optimizer_state) && joint->phase != Phase::collective) {
    const std::optional<double> size = largest_relative_difference(a, b, true);
    if (joint->divergence.kind != DivergenceKind::bits || (size && *size > rounding_bound(0))) joint = first;
  }
  if (!joint || joint->phase != first->phase) result.passed = std::move(first);
  result.counts = std::move(joint);
  return result;
}

std::optional<double> largest_relative_difference(const StepOfRun& a, const StepOfRun& b, bool joint_only) {
  double largest = 0;
  bool all_known = true;
  std::set<std::pair<Phase, std::string>> told;  // sizes that rank 0 knows, of what is alike on all
  for (std::size_t rank = 0; rank < a.ranks.size(); ++rank) {
    for (const Phase phase : phases_in_order()) {
      if (phase == Phase::collective || phase == Phase::gradient_parts) continue;  // of calls hashes tell no size
      if (joint_only && is_of_one_rank(phase)) continue;
      const RecordList of_a = of_phase(a.ranks[rank], phase), of_b = of_phase(b.ranks[rank], phase);
      for (std::size_t i = 0; i < std::min(of_a.size(), of_b.size()); ++i) {
        if (!same_subject(*of_a[i], *of_b[i]) || same_value(*of_a[i], *of_b[i])) continue;
        const double relative = relative_of(*of_a[i], *of_b[i], of_a);
        if (rank == 0 && of_a[i]->replicated && !std::isnan(relative)) told.emplace(phase, of_a[i]->name);
        all_known = all_known && (!std::isnan(relative) || (rank > 0 && of_a[i]->replicated && told.contains({phase, of_a[i]->name})));
        if (!std::isnan(relative)) largest = std::max(largest, relative);
      }
    }
  }
  return all_known || largest > rounding_bound(0) ? std::optional(largest) : std::nullopt;
}

bool differ_in_zeros_alone(const StepOfRun& a, const StepOfRun& b) {
  std::set<std::pair<Phase, std::string>> signs;  // what differs in signs of zeros
  for (std::size_t rank = 0; rank < a.ranks.size(); ++rank) {
    const std::vector<Record>&of_a = a.ranks[rank].records, &of_b = b.ranks[rank].records;
    if (of_a.size() != of_b.size()) return false;
    for (std::size_t i = 0; i < of_a.size(); ++i) {
      const Record &x = of_a[i], &y = of_b[i];
      if (!same_subject(x, y)) return false;
      if (same_value(x, y)) continue;
      // Its hashes follow what goes in and comes out; alone they are no matter of signs.
      if (x.phase == Phase::collective) continue;
      // Of what is alike on all ranks rank 0 may keep the values alone; its own then speak for the others' hashes.
      const bool spoken_for = rank > 0 && x.replicated && x.payload.empty() && signs.contains({x.phase, x.name});
      if (is_exact(x.phase) || !(spoken_for || equal_as_numbers(x, y))) return false;
      signs.emplace(x.phase, x.name);
    }
  }
  return !signs.empty();
}

/// The record of that subject on a rank; ranks record in the same order but for what rank 0 alone observes,
/// so the search is short.
static const Record* subject_on(const StepRecords& rank, const Record& subject, std::size_t guess) {
  const std::vector<Record>& records = rank.records;
  if (guess < records.size() && same_subject(subject, records[guess])) return &records[guess];
  const auto found = std::ranges::find_if(records, [&](const Record& each) { return same_subject(subject, each); });
  return found == records.end() ? nullptr : &*found;
}

std::optional<ReplicaDrift> replica_drift(const StepOfRun& step, const StepOfRun* reference,
                                          std::optional<Phase> alone) {
  const std::vector<Record>& records = step.ranks[0].records;
  std::optional<ReplicaDrift> first;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& mine = records[i];
    if (!mine.replicated || mine.phase != alone.value_or(mine.phase)) continue;
    if (first && place_of(mine.phase, mine.name) >= place_of(first->phase, first->name)) continue;
    bool differs = false;
    for (std::size_t rank = 1; rank < step.ranks.size() && !differs; ++rank) {
      const Record* other = subject_on(step.ranks[rank], mine, i);
      differs = other != nullptr && !same_value(mine, *other);
    }
    if (!differs) continue;
    const Holders holders = holders_of(step, mine, reference);
    if (!holders.parted()) continue;
    const std::vector<int> odd = holders.odd();
    const Record* wrong = subject_on(step.ranks[static_cast<std::size_t>(odd.front())], mine, i);
    const Record* model = subject_on(step.ranks[static_cast<std::size_t>(holders.model())], mine, i);
    if (!wrong || !model || wrong == model) continue;
    first = ReplicaDrift{mine.phase, holders.right < 0 ? kRankUnknown : odd.front(), holders, mine.name, "",
                         describe(model, wrong, DivergenceKind::bits, true), describe(wrong, model, DivergenceKind::bits, false)};
    first->sentence = fmt::format("at step {}, {}, rank {} has {} for {} and rank {} {}", step.step, name_of(mine.phase),
                                  odd.front(), first->actual, mine.name, holders.model(), first->expected);
    first->sentence += holders.right < 0 ? "; it is unknown which is right"
                       : odd.size() > 1  ? fmt::format(", the reference's; {} differ from it", ranks_text(odd))
                                         : "";
  }
  return first;
}

static bool alike(const Record& a, const Record& b) {
  if (a.is_scalar) return b.is_scalar && same_bits(a.value, b.value);
  return same_form(a, b) && a.stats.hash == b.stats.hash;
}

/// How far it lies from the reference's, by its size; nothing where the traces do not tell.
static std::optional<double> gap_to(const Record& reference, const Record& record) {
  constexpr double kLeast = std::numeric_limits<double>::min();
  if (record.is_scalar) return relative_of(reference, record, {});
  if (!record.has_stats || !reference.has_stats || record.shape != reference.shape) return std::nullopt;
  if (record.stats.nonfinite != reference.stats.nonfinite) return kInfinity;
  return apart(reference.stats, record.stats) / std::max(reference.stats.norm, kLeast);
}

/// The group that the reference speaks for by size, see holders_of.
static int nearest_group(const std::vector<std::vector<int>>& groups, const std::vector<const Record*>& records, const Record& reference,
                  int64_t step) {
  constexpr double kClearly = 8, kUseless = 0.1;
  std::vector<std::optional<double>> gaps;
  for (const std::vector<int>& group : groups) gaps.push_back(gap_to(reference, *records[static_cast<std::size_t>(group.front())]));
  const bool all_known = std::ranges::all_of(gaps, [](const auto& gap) { return gap.has_value(); });
  if (all_known) {
    const auto nearest = std::ranges::min_element(gaps) - gaps.begin();
    for (std::size_t k = 0; k < gaps.size(); ++k) {
      if (static_cast<std::ptrdiff_t>(k) != nearest && !(*gaps[k] > kClearly * *gaps[static_cast<std::size_t>(nearest)])) return -1;
    }
    return static_cast<int>(nearest);
  }
  const std::size_t most = groups.size() - 1;
  const bool majority = 2 * groups[most].size() > records.size();
  const auto of_rank_0 = std::ranges::find_if(groups, [](const auto& group) { return group.front() == 0; }) - groups.begin();
  if (!majority || of_rank_0 == std::ssize(groups) || !gaps[static_cast<std::size_t>(of_rank_0)]) return -1;
  const bool near = *gaps[static_cast<std::size_t>(of_rank_0)] <= std::min(kUseless, rounding_bound(std::max<int64_t>(step, 0)));
  const bool in_most = static_cast<std::size_t>(of_rank_0) == most;
  return near == in_most ? static_cast<int>(most) : -1;
}

std::vector<int> Holders::odd() const {
  std::vector<int> ranks;
  for (std::size_t k = 0; k < groups.size(); ++k) {
    const bool is_model = right < 0 ? k + 1 == groups.size() : static_cast<int>(k) == right;
    if (!is_model) ranks.insert(ranks.end(), groups[k].begin(), groups[k].end());
  }
  std::ranges::sort(ranks);
  return ranks;
}

Holders holders_of(const StepOfRun& step, const Record& subject, const StepOfRun* reference) {
  Holders holders;
  std::vector<const Record*> records;
  for (const StepRecords& rank : step.ranks) records.push_back(find_record(rank, subject.phase, subject.name));
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    if (!records[rank]) continue;
    const auto group = std::ranges::find_if(holders.groups, [&](const std::vector<int>& ranks) {
      return alike(*records[static_cast<std::size_t>(ranks.front())], *records[rank]);
    });
    if (group == holders.groups.end()) holders.groups.push_back({static_cast<int>(rank)});
    else group->push_back(static_cast<int>(rank));
  }
  std::ranges::stable_sort(holders.groups, [](const auto& x, const auto& y) {
    return x.size() != y.size() ? x.size() < y.size() : x.front() > y.front();
  });
  const Record* expected = reference ? find_record(reference->ranks[0], subject.phase, subject.name) : nullptr;
  if (!expected || !holders.parted()) return holders;
  for (std::size_t k = 0; k < holders.groups.size() && holders.right < 0; ++k) {
    if (!alike(*records[static_cast<std::size_t>(holders.groups[k].front())], *expected)) continue;
    holders.right = static_cast<int>(k);
    holders.same_bits = true;
  }
  if (holders.right < 0) holders.right = nearest_group(holders.groups, records, *expected, step.step);
  return holders;
}

std::set<uint64_t> hashes_of(const StepOfRun& step, Phase phase, const std::string& name) {
  std::set<uint64_t> hashes;
  for (const StepRecords& rank : step.ranks)
    if (const Record* record = find_record(rank, phase, name)) hashes.insert(record->stats.hash);
  return hashes;
}

bool each_keeps_its_own(const StepOfRun& step, const std::string& name) {
  for (const StepRecords& rank : step.ranks) {
    const Record *local = find_record(rank, Phase::local_gradients, name),
                 *reduced = find_record(rank, Phase::reduced_gradients, name);
    if (local && reduced && local->stats.hash != reduced->stats.hash) return false;
  }
  return hashes_of(step, Phase::local_gradients, name).size() < 2 ||
         hashes_of(step, Phase::applied_gradients, name).size() != 1;
}

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  const bool in_a_row = ranks.size() > 2 && ranks.back() - ranks.front() + 1 == std::ssize(ranks);
  if (in_a_row) return fmt::format("ranks {} to {}", ranks.front(), ranks.back());
  std::vector<std::string> numbers;
  for (const int rank : ranks) numbers.push_back(std::to_string(rank));
  return "ranks " + join_words(numbers);
}

}  // namespace lockstep
