#include "harness/judge/compare/bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/base/json.h"
#include "harness/base/numbers.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/evidence/parts.h"
#include "harness/judge/trace/record.h"

namespace lockstep {

namespace {

// --- sample ids ---

uint64_t merged_hash(const StepOfRun& step, Phase phase, const std::string& name) {
  uint64_t sum = 0;
  for (const StepRecords& rank : step.ranks) {
    const Record* record = find_record(rank, phase, name);
    sum += record ? record->stats.hash : 0;
  }
  return sum;
}

std::vector<int64_t> sorted_ids(const StepOfRun& step) {
  std::vector<int64_t> ids;
  for (const int rank : ranks_with_rows(step)) {
    const std::vector<int64_t> own = sample_ids(step.ranks[static_cast<std::size_t>(rank)]);
    ids.insert(ids.end(), own.begin(), own.end());
  }
  std::ranges::sort(ids);
  return ids;
}

std::string samples_text(const std::vector<int64_t>& ids) {
  if (ids.empty()) return "none";
  const std::size_t shown = std::min<std::size_t>(ids.size(), 6);
  std::string text = ids.size() == 1 ? "sample " : "samples ";
  text += fmt::format("{}", fmt::join(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < ids.size()) text += fmt::format(" and {} more", ids.size() - shown);
  return text;
}

/// Does any rank say which samples it has? A tracer that finds a loader's ids may find them in one layout alone.
bool says_samples(const StepOfRun& step) {
  return std::ranges::any_of(step.ranks, [](const StepRecords& rank) { return !records_of(rank, Phase::samples).empty(); });
}

/// Does each rank have all the samples that the reference's ranks have together? Whether it works on a part of their
/// rows, or on all of them again, its gradients tell.
bool all_have_the_whole(const StepOfRun& step, const std::vector<int64_t>& whole) {
  return std::ranges::all_of(step.ranks, [&](const StepRecords& rank) {
    std::vector<int64_t> ids = sample_ids(rank);
    std::ranges::sort(ids);
    return ids == whole;
  });
}

std::optional<Difference> samples_difference(const StepOfRun& a, const StepOfRun& b, bool one_program) {
  if (!says_samples(a) || !says_samples(b)) return std::nullopt;
  // The merged hash settles the common case; ids in other rows are the same batch all the same.
  if (merged_hash(a, Phase::samples, "samples") == merged_hash(b, Phase::samples, "samples"))
    return std::nullopt;
  const std::vector<int64_t> in_a = sorted_ids(a), in_b = sorted_ids(b);
  if (!one_program && all_have_the_whole(b, in_a)) return std::nullopt;
  std::vector<int64_t> missing, extra;
  std::set_difference(in_a.begin(), in_a.end(), in_b.begin(), in_b.end(), std::back_inserter(missing));
  std::set_difference(in_b.begin(), in_b.end(), in_a.begin(), in_a.end(), std::back_inserter(extra));
  if (missing.empty() && extra.empty()) return std::nullopt;
  // Of ids beyond the batch those tell a rank that are not in the batch at all; else any rank may have them too often.
  const bool foreign = std::ranges::any_of(extra, [&](int64_t id) { return !std::ranges::binary_search(in_a, id); });
  const auto is_told = [&](int64_t id) {
    return std::ranges::binary_search(extra, id) && (!foreign || !std::ranges::binary_search(in_a, id));
  };
  const auto holds_one = [&](std::size_t rank) { return std::ranges::any_of(sample_ids(b.ranks[rank]), is_told); };
  const auto holders = ranks_where<int>(b.ranks.size(), holds_one);
  const int rank = foreign || holders.empty() ? first_or_all(holders, b) : holders.front();
  return difference_at(b, Phase::samples, rank, "samples",
                       extra.empty() ? DivergenceKind::missing : DivergenceKind::value, samples_text(missing),
                       samples_text(extra));
}

// --- what rows hold ---

/// A hash and the row's length, or, in older traces, the hash alone.
bool is_hash(const std::vector<double>& values) {
  constexpr double kHash = 1e12;
  return (values.size() == 1 || values.size() == 2) && std::abs(values[0]) > kHash;
}

/// The same, or one of the two with ignored places (below 0) at its end or its beginning: batches are padded to their
/// longest row.
bool holds_the_same(const std::vector<double>& a, const std::vector<double>& b) {
  if (is_hash(a) && is_hash(b) && std::max(a.size(), b.size()) == 2)
    return a[0] == b[0] || (a.size() == b.size() && a[1] != b[1]);
  const std::vector<double>&longer = a.size() < b.size() ? b : a, &shorter = a.size() < b.size() ? a : b;
  const auto common = std::ssize(shorter), more = std::ssize(longer) - common;
  if (more == 0 || common < 2) return a == b;
  const auto is_padding = [](auto first, auto last) { return std::all_of(first, last, [](double value) { return value < 0; }); };
  return (std::equal(shorter.begin(), shorter.end(), longer.begin()) && is_padding(longer.begin() + common, longer.end())) ||
         (std::equal(shorter.begin(), shorter.end(), longer.begin() + more) && is_padding(longer.begin(), longer.begin() + more));
}

std::string held_text(const std::vector<double>& values, const std::vector<double>& other) {
  if (values.size() != other.size()) return fmt::format("{} values", values.size());
  const auto at = static_cast<std::size_t>(std::ranges::mismatch(values, other).in1 - values.begin());
  return values.size() == 1 ? fmt::format("{:.17g}", values[at]) : fmt::format("{:.17g} at place {} of {}", values[at], at, values.size());
}

/// The first sample of the step that both runs have and that holds other inputs or labels in run B. Nothing where
/// values or ids were not kept.
std::optional<Difference> inputs_difference(const StepOfRun& a, const StepOfRun& b) {
  std::set<std::string> names;
  for (const StepRecords& rank : a.ranks)
    for (const Record* record : records_of(rank, Phase::inputs)) names.insert(record->name);
  for (const std::string& name : names) {
    const std::map<int64_t, SampleRow> expected = rows_by_sample(a, Phase::inputs, name),
                                         found = rows_by_sample(b, Phase::inputs, name);
    std::set<int> ranks;
    const SampleRow* first = nullptr;
    int compared = 0, others = 0;
    for (const auto& [id, actual] : found) {
      const auto row = expected.find(id);
      if (row == expected.end()) continue;
      ++compared;
      if (holds_the_same(row->second.values, actual.values)) continue;
      ++others;
      ranks.insert(actual.rank);
      if (!first) first = &actual;
    }
    // Hashes that differ in all rows may be of numbers that are rounded otherwise, as after a mean over ranks.
    if (!first || (others == compared && compared > 1 && is_hash(first->values) && a.ranks.size() != b.ranks.size()))
      continue;
    const std::vector<double>& wanted = expected.at(first->id).values;
    Difference difference =
        difference_at(b, Phase::inputs, first_or_all({ranks.begin(), ranks.end()}, b), name, DivergenceKind::value,
                      held_text(wanted, first->values), held_text(first->values, wanted));
    difference.divergence.sample = first->id;
    difference.divergence.sentence += fmt::format(" It is sample {}.", first->id);
    return difference;
  }
  return std::nullopt;
}

// --- random streams ---

struct StreamSum {
  uint64_t hash = 0;
  double draws = 0;
  std::set<uint64_t> by_rank;
};

std::map<std::string, StreamSum> stream_sums(const StepOfRun& step) {
  std::map<std::string, StreamSum> sums;
  for (const StepRecords& rank : step.ranks) {
    for (const Record* record : records_of(rank, Phase::random)) {
      if (is_of_a_generator(record->name)) continue;
      StreamSum& sum = sums[record->name];
      sum.hash += record->stats.hash;
      sum.draws += record->value;
      sum.by_rank.insert(record->stats.hash);
    }
  }
  return sums;
}

std::string stream_text(const std::map<std::string, StreamSum>& sums, const std::string& name) {
  const auto found = sums.find(name);
  if (found == sums.end()) return "nothing";
  return fmt::format("hash {}, {} draws", hex16(found->second.hash), exact_number(found->second.draws));
}

/// "dropout replay" is drawn by runs that compute activations again in the backward pass. It must be what
/// "dropout" was, also where the other run has no second pass.
std::map<std::string, StreamSum> with_replays(std::map<std::string, StreamSum> sums,
                                              const std::map<std::string, StreamSum>& other) {
  constexpr std::string_view kReplay = " replay";
  for (const auto& [name, unused] : other) {
    const bool replay = name.size() > kReplay.size() && name.ends_with(kReplay);
    const auto first = replay ? sums.find(name.substr(0, name.size() - kReplay.size())) : sums.end();
    if (first != sums.end()) sums.emplace(name, first->second);
  }
  return sums;
}

std::optional<Difference> random_difference(const StepOfRun& a, const StepOfRun& b, bool one_program) {
  const std::map<std::string, StreamSum> own_a = stream_sums(a), own_b = stream_sums(b);
  const std::map<std::string, StreamSum> sums_a = with_replays(own_a, own_b),
                                         sums_b = with_replays(own_b, own_a);
  std::map<std::string, StreamSum> names = sums_a;
  names.insert(sums_b.begin(), sums_b.end());
  const int world_size = static_cast<int>(b.ranks.size());
  for (const auto& [name, unused] : names) {
    const auto in_a = sums_a.find(name), in_b = sums_b.find(name);
    const bool both = in_a != sums_a.end() && in_b != sums_b.end();
    if (!both && !one_program) continue;
    if (both && in_a->second.hash == in_b->second.hash && in_a->second.draws == in_b->second.draws) continue;
    const bool all_alike = both && world_size > 1 && in_b->second.by_rank.size() == 1;
    Difference result = difference_at(b, Phase::random, all_alike ? kAllRanks : kRankUnknown, name,
                                      both ? DivergenceKind::bits : DivergenceKind::missing, stream_text(sums_a, name),
                                      stream_text(sums_b, name));
    if (all_alike) {
      result.divergence.actual += fmt::format("; all {} ranks drew the same numbers", world_size);
      result.divergence.sentence += fmt::format(" All {} ranks drew the same numbers.", world_size);
    }
    return result;
  }
  return std::nullopt;
}

// --- control values ---

/// Equal bits, or the same number that one of the runs read from a float32 tensor.
bool same_control(double a, double b) {
  if (same_bits(a, b)) return true;
  const auto rounded = [](double value) { return static_cast<double>(static_cast<float>(value)); };
  return rounded(a) == rounded(b) && (rounded(a) == a || rounded(b) == b);
}

/// Of a schedule its points.
std::string control_text(const Record* record) {
  if (!record) return "nothing";
  if (record->is_scalar) return exact_number(record->value);
  std::string text = form_text(*record);
  if (const auto values = values_of(*record); values && !values->empty()) {
    text += fmt::format(" from {} to {}", short_number(values->front()), short_number(values->back()));
  }
  return text;
}

bool same_control(const Record& a, const Record& b) {
  if (a.is_scalar && b.is_scalar) return same_control(a.value, b.value);
  return a.is_scalar == b.is_scalar && a.dtype == b.dtype && a.shape == b.shape && a.stats.hash == b.stats.hash;
}

constexpr const char* kSkipped = "skipped";
bool is_skipped(const Record* record) { return record && record->value != 0; }

/// Does the rank end the step with the parameters, bit for bit, of a rank that has made the update? Then it was given
/// them.
bool has_updated_parameters(const StepOfRun& step, const StepRecords& rank) {
  const auto is_held = [&](const StepRecords& other) {
    const std::vector<const Record*> held = records_of(rank, Phase::parameters);
    return !held.empty() && std::ranges::all_of(held, [&](const Record* record) {
      const Record* same = find_record(other, record->phase, record->name);
      return is_buffer(record->name) || (same && same->stats.hash == record->stats.hash);
    });
  };
  return std::ranges::any_of(step.ranks, [&](const StepRecords& other) {
    return !is_skipped(find_record(other, Phase::control, kSkipped)) && is_held(other);
  });
}

bool record_rates(const StepOfRun& step) { return find_record(step.ranks[0], Phase::control, "learning_rate") != nullptr; }

/// A rate is of a parameter that the rank does not hold: another rank owns it.
bool is_rate_of_others(const StepRecords& rank, const std::string& name) {
  constexpr std::string_view kOf = "learning_rate/";
  if (!name.starts_with(kOf)) return false;
  const auto holds = [&](Phase phase) { return find_record(rank, phase, name.substr(kOf.size())) != nullptr; };
  const bool records_any = !records_of(rank, Phase::parameters).empty() || !records_of(rank, Phase::reduced_gradients).empty();
  return records_any && !holds(Phase::parameters) && !holds(Phase::reduced_gradients) && !holds(Phase::local_gradients);
}

std::optional<Difference> control_difference(const StepOfRun& a, const StepOfRun& b, bool one_program) {
  std::vector<std::string> names;
  for (const StepOfRun* run : {&a, &b}) {
    for (const Record* record : records_of(run->ranks[0], Phase::control)) {
      if (std::ranges::find(names, record->name) == names.end()) names.push_back(record->name);
    }
  }
  // A tracer may write it on the ranks alone that leave out an update.
  if (std::ranges::find(names, kSkipped) == names.end()) names.emplace_back(kSkipped);
  for (const std::string& name : names) {
    const Record* expected = find_record(a.ranks[0], Phase::control, name);
    const auto is_recorded = [&](const StepRecords& rank) { return find_record(rank, Phase::control, name) != nullptr; };
    const bool by_one = !one_program && name != kSkipped && (!expected || std::ranges::none_of(b.ranks, is_recorded));
    // Where both record rates, a group without one of its own has the first group's.
    if (by_one && !(name.starts_with("learning_rate/") && record_rates(a) && record_rates(b))) continue;
    const auto wrong = ranks_where<int>(b.ranks.size(), [&](std::size_t rank) {
      const StepRecords& own = b.ranks[rank];
      const Record* actual = find_record(own, Phase::control, name);
      const bool same = name == kSkipped ? is_skipped(expected) == is_skipped(actual) : expected && actual && same_control(*expected, *actual);
      const bool of_others = !one_program && (is_skipped(actual) && name == kSkipped ? !is_skipped(expected) && has_updated_parameters(b, own)
                                                                                     : !actual && is_rate_of_others(own, name));
      return !same && !of_others;
    });
    if (wrong.empty()) continue;
    const Record* actual = find_record(b.ranks[static_cast<std::size_t>(wrong[0])], Phase::control, name);
    return difference_at(b, Phase::control, first_or_all(wrong, b), name,
                         expected && actual ? DivergenceKind::value : DivergenceKind::missing, control_text(expected),
                         control_text(actual));
  }
  return std::nullopt;
}

}  // namespace

bool rows_reordered(const StepOfRun& a, const StepOfRun& b) {
  if (a.ranks.size() != b.ranks.size()) return false;
  bool other = false;
  for (std::size_t rank = 0; rank < a.ranks.size() && !other; ++rank) {
    const std::vector<const Record*> of_a = records_of(a.ranks[rank], Phase::samples), of_b = records_of(b.ranks[rank], Phase::samples);
    if (of_a.size() != of_b.size()) return false;
    for (std::size_t i = 0; i < of_a.size(); ++i) other = other || of_a[i]->ids != of_b[i]->ids;
  }
  return other && sorted_ids(a) == sorted_ids(b);
}

int64_t micro_steps_of(const StepOfRun& step) {
  std::set<std::string> parts;
  for (const Record* part : records_of(step.ranks[0], Phase::gradient_parts)) {
    if (part->name.starts_with("micro ")) parts.insert(part->name.substr(0, part->name.find('/')));
  }
  return std::max({int64_t{1}, step.declared ? step.declared->accumulation : 1, std::ssize(parts)});
}

bool same_partition(const StepOfRun& a, const StepOfRun& b) {
  return a.ranks.size() == b.ranks.size() && micro_steps_of(a) == micro_steps_of(b) && !rows_reordered(a, b);
}

std::optional<Difference> first_exact_difference(const StepOfRun& a, const StepOfRun& b, bool one_program) {
  if (auto found = samples_difference(a, b, one_program)) return found;
  if (auto found = random_difference(a, b, one_program)) return found;
  if (auto found = generators_difference(a, b, same_partition(a, b))) return found;
  if (auto found = inputs_difference(a, b)) return found;
  return control_difference(a, b, one_program);
}

}  // namespace lockstep
