// Causes of wrong sample ids: from the ids of all ranks at this step, the steps before and the one after.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "harness/base/json.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/led.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep::causes {
namespace {

using Ids = std::vector<int64_t>;
using ByRank = std::vector<Ids>;

const ByRank* at(const SampleHistory& history, int64_t step) {
  const auto found = history.find(step);
  return found == history.end() ? nullptr : &found->second;
}

/// What each of `ranks` ranks holds of a batch that others hold: row i of the global batch is on rank i mod
/// V. Empty if rows are not partitioned equally.
ByRank partitioned(const ByRank& batch, std::size_t ranks) {
  if (batch.size() == ranks) return batch;
  Ids global;
  for (std::size_t k = 0; k < batch.front().size(); ++k) {
    for (const Ids& rank : batch) {
      if (rank.size() != batch.front().size()) return {};
      global.push_back(rank[k]);
    }
  }
  if (global.empty() || global.size() % ranks != 0) return {};
  ByRank result(ranks);
  for (std::size_t i = 0; i < global.size(); ++i) result[i % ranks].push_back(global[i]);
  return result;
}

Ids sorted(const ByRank& batch) {
  Ids ids;
  for (const Ids& rank : batch) ids.insert(ids.end(), rank.begin(), rank.end());
  std::ranges::sort(ids);
  return ids;
}

/// Everything that the rules ask of the samples of the step.
struct Samples {
  ByRank now, expected, before, next;  ///< by rank; empty if not known
  Ids missing, extra, batch;           ///< of the global batch; `batch` is the reference's
  std::vector<std::size_t> differing;  ///< ranks
  std::optional<bool> right_at_next;   ///< do they hold what they should at the next step? Nothing: not known
};

std::optional<Samples> samples_of(const CauseInputs& inputs) {
  const int64_t step = inputs.difference.divergence.step;
  const ByRank* now = at(inputs.cell_samples, step);
  const ByRank* reference = at(inputs.reference_samples, step);
  if (!now || !reference || sorted(*now).empty() || sorted(*reference).empty()) return std::nullopt;
  Samples samples;
  samples.now = *now;
  samples.expected = partitioned(*reference, now->size());
  const auto differs = [&](std::size_t rank) { return samples.expected[rank] != samples.now[rank]; };
  samples.differing = ranks_where(samples.expected.size(), differs);
  if (const ByRank* before = at(inputs.cell_samples, step - 1)) samples.before = *before;
  if (const ByRank* next = at(inputs.reference_samples, step + 1)) samples.next = partitioned(*next, now->size());
  if (const ByRank* next = at(inputs.cell_samples, step + 1); next && samples.next.size() == next->size()) {
    samples.right_at_next = std::ranges::all_of(
        samples.differing, [&](std::size_t rank) { return (*next)[rank] == samples.next[rank]; });
  }
  samples.batch = sorted(*reference);
  const Ids actual = sorted(*now);
  std::set_difference(samples.batch.begin(), samples.batch.end(), actual.begin(), actual.end(),
                      std::back_inserter(samples.missing));
  std::set_difference(actual.begin(), actual.end(), samples.batch.begin(), samples.batch.end(),
                      std::back_inserter(samples.extra));
  return samples;
}

bool in_batch(const Samples& samples, int64_t id) {
  return std::ranges::binary_search(samples.batch, id);
}

/// A rank whose list lost one sample and took the next one of its stream at the end.
std::optional<std::pair<std::size_t, int64_t>> dropped_by(const Samples& samples) {
  if (samples.differing.size() != 1) return std::nullopt;
  const std::size_t rank = samples.differing.front();
  const Ids &expected = samples.expected[rank], &actual = samples.now[rank];
  for (std::size_t k = 0; k < expected.size(); ++k) {
    Ids shortened = expected;
    shortened.erase(shortened.begin() + static_cast<std::ptrdiff_t>(k));
    if (actual == shortened) return std::pair{rank, expected[k]};
    if (samples.next.empty() || samples.next[rank].empty()) continue;
    shortened.push_back(samples.next[rank].front());
    // Of the last one of the list another sample stands in its place; who left it out goes on one place earlier.
    const bool replaced = k + 1 == expected.size() && samples.right_at_next.value_or(false);
    if (actual == shortened && !replaced) return std::pair{rank, expected[k]};
  }
  return std::nullopt;
}

bool all_alike(const ByRank& batch) {
  return std::ranges::all_of(batch, [&](const Ids& rank) { return rank == batch.front(); });
}

Answer shards_identical(const Samples& samples) {
  if (samples.now.size() < 2 || samples.now.front().empty() || !all_alike(samples.now)) return {};
  return told("all {} ranks have the samples {}; {} of {} samples of the global batch are missing", samples.now.size(),
              fmt::join(samples.now.front(), ", "), samples.missing.size(), samples.batch.size());
}

/// How often the batch's most used sample has been on any rank up to and with that step.
std::size_t most_uses(const SampleHistory& history, int64_t step, const ByRank& batch) {
  const Ids wanted = sorted(batch);
  std::map<int64_t, std::size_t> uses;
  std::size_t most = 0;
  for (const auto& [at_step, ranks] : history) {
    if (at_step > step) break;
    for (const int64_t id : sorted(ranks))
      if (std::ranges::binary_search(wanted, id)) most = std::max(most, ++uses[id]);
  }
  return most;
}

Answer set_epoch_forgotten(const CauseInputs& inputs) {
  const int64_t step = inputs.difference.divergence.step;
  const ByRank *now = at(inputs.cell_samples, step), *reference = at(inputs.reference_samples, step);
  if (!now || !reference) return {};
  for (const auto& [old, batch] : inputs.cell_samples) {
    if (old < 0 || old + 1 >= step || batch != *now) continue;
    const ByRank* then = at(inputs.reference_samples, old);
    if (!then || sorted(*reference) == sorted(*then)) continue;
    // An epoch in the old order uses each sample as often as one in a new order. A run that was resumed too early
    // has a batch once more than that.
    const std::size_t uses = most_uses(inputs.cell_samples, step, *now);
    if (uses < 2 || uses != most_uses(inputs.reference_samples, step, *reference)) continue;
    return told("at step {} every rank has exactly the samples of step {} in the same order, where the reference "
                "begins a new permutation",
                step, old);
  }
  return {};
}

/// The first step of the epoch in which the reference is at `step`: the last at which a sample came back that its pass had had.
int64_t epoch_start(const SampleHistory& history, int64_t step) {
  std::set<int64_t> seen;
  int64_t start = step;
  for (const auto& [at_step, batch] : history) {
    if (at_step > step) break;
    const Ids ids = sorted(batch);
    if (ids.empty()) continue;  // before the first step
    if (seen.empty() || std::ranges::any_of(ids, [&](int64_t id) { return seen.contains(id); })) {
      seen.clear();
      start = at_step;
    }
    seen.insert(ids.begin(), ids.end());
  }
  return start;
}

/// Some ranks go on as in an epoch before, where the reference begins a new permutation.
Answer set_epoch_forgotten_on_some(const CauseInputs& inputs, const Samples& samples) {
  const int64_t step = inputs.difference.divergence.step;
  if (epoch_start(inputs.reference_samples, step) != step) return {};
  // Ranks that hold samples of another batch, however rows are partitioned.
  const auto holds_others = [&](std::size_t rank) {
    return std::ranges::any_of(samples.now[rank], [&](int64_t id) { return !in_batch(samples, id); });
  };
  const auto wrong = ranks_where(samples.now.size(), holds_others);
  if (wrong.empty() || wrong.size() == samples.now.size()) return {};
  for (const auto& [old, then] : inputs.cell_samples) {
    if (old + 1 >= step) break;
    if (epoch_start(inputs.reference_samples, old) != old) continue;
    const auto repeats = [&](std::size_t rank) { return rank < then.size() && samples.now[rank] == then[rank]; };
    if (then.empty() || !std::ranges::all_of(wrong, repeats)) continue;
    return told("at step {} rank {} has its samples of step {} in the same order, where the reference begins a new "
                "permutation and the other ranks do, too",
                step, fmt::join(wrong, ", "), old);
  }
  return {};
}

/// The whole batch is the epoch's first, or, where the cell's samples begin here, that of another step.
Answer position_lost(const CauseInputs& inputs, const Samples& samples) {
  const int64_t step = inputs.difference.divergence.step;
  if (samples.extra.empty() || set_epoch_forgotten(inputs)) return {};
  const int64_t start = epoch_start(inputs.reference_samples, step);
  const ByRank* before = at(inputs.cell_samples, step - 1);
  const bool resumed = !before || sorted(*before).empty();
  const Ids now = sorted(samples.now);
  if (now == sorted(samples.before)) return {};  // it has never gone on
  for (const auto& [other, batch] : inputs.reference_samples) {
    if (other == step || sorted(batch) != now || (other != start && !resumed)) continue;
    if (other == start && step == start) continue;
    return told(other == start ? kExact : 0.95, "at step {} the ranks have the samples of step {}{}", step, other,
                other == start ? ", the first of the epoch" : ", and their trace begins here");
  }
  return {};
}

/// Rows beyond the reference's are samples that the epoch has had before.
Answer padding_at_epoch_end(const CauseInputs& inputs, const Samples& samples) {
  const int64_t step = inputs.difference.divergence.step;
  if (samples.extra.empty() || !samples.missing.empty()) return {};
  std::set<int64_t> had;
  const int64_t start = epoch_start(inputs.reference_samples, step);
  for (const auto& [other, batch] : inputs.cell_samples) {
    if (other < start || other >= step) continue;
    for (const int64_t id : sorted(batch)) had.insert(id);
  }
  if (had.empty() || !std::ranges::all_of(samples.extra, [&](int64_t id) { return had.contains(id); })) return {};
  return told("{} rows beyond the reference's {} hold samples that the epoch, which began at step {}, has had: sample "
              "{} first",
              samples.extra.size(), samples.batch.size(), start, samples.extra.front());
}

/// A step of a run that had the reference's batch at the step before, and has now the rows of several of the reference's steps: they were
/// recorded as one, since the update between them was not made, or not by every optimizer.
bool holds_rows_of_several_steps(const CauseInputs& inputs, const Samples& samples) {
  const int64_t step = inputs.difference.divergence.step;
  const ByRank *before = at(inputs.reference_samples, step - 1), *next = at(inputs.reference_samples, step + 1);
  if (!before || !next || sorted(*before).empty() || sorted(samples.before) != sorted(*before)) return false;
  const Ids now = sorted(samples.now), later = sorted(*next);
  return !later.empty() && std::ranges::includes(now, samples.batch) && std::ranges::includes(now, later);
}

/// As many rows on each rank as the reference has on all of them.
Answer global_batch_times_world(const CauseInputs& inputs, const Samples& samples) {
  const int64_t step = inputs.difference.divergence.step;
  if (samples.now.size() < 2 || samples.extra.empty() || padding_at_epoch_end(inputs, samples)) return {};
  if (holds_rows_of_several_steps(inputs, samples)) return {};
  const std::size_t world = samples.now.size(), rows = sorted(samples.now).size();
  if (rows != world * samples.batch.size() || all_alike(samples.now)) return {};
  return told("step {} has {} rows on {} ranks together, the reference's {}: {} times as many", step, rows, world,
              samples.batch.size(), world);
}

/// Has the reference the whole batch of its step before again?
bool reference_repeats(const CauseInputs& inputs, const Samples& samples) {
  const ByRank* before = at(inputs.reference_samples, inputs.difference.divergence.step - 1);
  return before && sorted(*before) == samples.batch;
}

Answer rank_behind_data(const CauseInputs& inputs, const Samples& samples) {
  if (samples.differing.empty() || samples.before.size() != samples.now.size()) return {};
  const auto is_behind = [&](std::size_t rank) { return samples.now[rank] == samples.before[rank]; };
  if (reference_repeats(inputs, samples)) {
    const auto behind = ranks_where(samples.now.size(), is_behind);
    if (behind.empty()) return {};
    return told("rank {} has the samples that it had at the previous step, and so has the reference",
                fmt::join(behind, ", "));
  }
  if (!std::ranges::all_of(samples.differing, is_behind)) return {};
  return told("rank {} has the samples {} that it had at the previous step", fmt::join(samples.differing, ", "),
              fmt::join(samples.now[samples.differing.front()], ", "));
}

Answer sample_dropped(const Samples& samples) {
  if (const auto dropped = dropped_by(samples)) {
    return of_rank(told("rank {} omits sample {} and has the rest of its list one position earlier", dropped->first,
                        dropped->second),
                   std::vector{dropped->first});
  }
  if (!samples.extra.empty() || samples.missing.empty()) return {};
  // Where every other rank has its own samples, whose they are is known.
  return of_rank(told("{} of the reference's batch are missing on all ranks, sample {} first, with nothing in their "
                      "place",
                      counted(std::ssize(samples.missing), "sample"), samples.missing.front()),
                 samples.differing);
}

Answer sample_duplicated(const CauseInputs& inputs, const Samples& samples) {
  if (dropped_by(samples) || samples.extra.size() != 1 || samples.missing.size() > 1 ||
      padding_at_epoch_end(inputs, samples))
    return {};
  if (!in_batch(samples, samples.extra.front())) return {};
  return told("sample {} occurs twice in the global batch{}", samples.extra.front(),
              samples.missing.empty() ? "" : fmt::format(", and sample {} is missing", samples.missing.front()));
}

Answer sample_replaced(const Samples& samples) {
  if (dropped_by(samples)) return {};
  if (samples.extra.size() != 1 || samples.missing.size() != 1) return {};
  // A rank of one row that is wrong again at the next step has another order, not one other sample.
  const bool single = samples.now.front().size() > 1 || samples.right_at_next.value_or(true);
  if (in_batch(samples, samples.extra.front()) || !single) return {};
  return told("sample {} is in the place of sample {}; all other samples are right", samples.extra.front(),
              samples.missing.front());
}

Answer shards_overlap(const Samples& samples) {
  if (samples.now.size() < 2 || samples.extra.size() < 2) return {};
  std::map<int64_t, std::set<std::size_t>> holders;
  for (std::size_t rank = 0; rank < samples.now.size(); ++rank)
    for (const int64_t id : samples.now[rank]) holders[id].insert(rank);
  // Random draws of another seed may meet by chance; shards that overlap explain every wrong sample.
  for (const int64_t id : samples.extra) {
    if (holders[id].size() < 2) return {};
  }
  const std::set<std::size_t>& both = holders[samples.extra.front()];
  return told("{} on two ranks each, e.g. sample {} on rank {} and rank {}; equally many are missing",
              counted(std::ssize(samples.extra), "sample"), samples.extra.front(), *both.begin(),
              *both.rbegin());
}

/// Do the ids of a rank stand anywhere in what the runs have seen of it?
bool seen_elsewhere(const CauseInputs& inputs, std::size_t rank, const Ids& ids) {
  const int64_t step = inputs.difference.divergence.step;
  for (const SampleHistory* history : {&inputs.reference_samples, &inputs.cell_samples}) {
    for (const auto& [when, batch] : *history) {
      if (history == &inputs.cell_samples && when == step) continue;
      const ByRank by_rank = partitioned(batch, at(inputs.cell_samples, step)->size());
      if (rank < by_rank.size() && by_rank[rank] == ids) return true;
    }
  }
  return false;
}

/// Is the whole batch one that either run had at another step, whoever of the ranks had which of its rows?
bool is_batch_of_another_step(const CauseInputs& inputs, const Samples& samples) {
  const int64_t step = inputs.difference.divergence.step;
  const auto is_now = [&, now = sorted(samples.now)](const auto& each) { return each.first != step && sorted(each.second) == now; };
  return std::ranges::any_of(inputs.reference_samples, is_now) || std::ranges::any_of(inputs.cell_samples, is_now);
}

/// Does a batch of that many rows or more hold ids that follow one another without a gap? A shuffled one does so by a chance
/// that is nil.
bool is_in_order(const Ids& sorted_ids) {
  constexpr std::size_t kTellingRows = 4;
  if (sorted_ids.size() < kTellingRows) return false;
  return sorted_ids.back() - sorted_ids.front() == std::ssize(sorted_ids) - 1 &&
         std::ranges::adjacent_find(sorted_ids) == sorted_ids.end();
}

bool one_is_in_order(const Samples& samples) {
  const Ids actual = sorted(samples.now);
  return is_in_order(actual) != is_in_order(samples.batch) && actual.size() == samples.batch.size();
}

Answer shuffle_differs(const Samples& samples) {
  if (samples.extra.empty() || !one_is_in_order(samples)) return {};
  const Ids actual = sorted(samples.now);
  const bool of_cell = is_in_order(actual);
  const Ids& ids = of_cell ? actual : samples.batch;
  return told("the ranks of {} have samples {} to {} without a gap, in the order of the data; those of {} are shuffled",
              of_cell ? "the cell" : "the reference", ids.front(), ids.back(), of_cell ? "the reference" : "the cell");
}

/// Do the configs tell that the runs draw from sets of different size?
bool other_samples(const CauseInputs& inputs) {
  if (!inputs.reference_config || !inputs.cell_config || !inputs.trainer || !inputs.trainer->counted_samples) return false;
  const auto expected = inputs.trainer->counted_samples(*inputs.reference_config),
             actual = inputs.trainer->counted_samples(*inputs.cell_config);
  return expected && actual && expected->train != actual->train;
}

/// Do ranks have samples of a permutation that is not the reference's?
bool is_of_another_permutation(const CauseInputs& inputs, const Samples& samples) {
  if (samples.differing.empty() || samples.extra.empty() || reference_repeats(inputs, samples)) return false;
  // A batch of another size is another question than another permutation.
  if (samples.extra.size() != samples.missing.size() || one_is_in_order(samples) || other_samples(inputs)) return false;
  const bool one_row = samples.now.front().size() == 1 && !samples.right_at_next.value_or(true);
  if (samples.extra.size() < 2 && !one_row) return false;
  if (is_batch_of_another_step(inputs, samples)) return false;
  return std::ranges::all_of(samples.differing, [&](std::size_t rank) {
    Ids expected = samples.expected[rank];
    std::ranges::sort(expected);
    const auto kept = std::ranges::count_if(samples.now[rank], [&](int64_t id) {
      return std::ranges::binary_search(expected, id);
    });
    return 2 * kept < std::ssize(expected) && !seen_elsewhere(inputs, rank, samples.now[rank]);
  });
}

/// A sample that the run's ranks take twice while the reference goes through its data once; nothing if each comes once.
std::optional<int64_t> taken_twice(const CauseInputs& inputs) {
  std::set<int64_t> expected, taken;
  for (int64_t step = epoch_start(inputs.reference_samples, inputs.difference.divergence.step);; ++step) {
    const ByRank *reference = at(inputs.reference_samples, step), *now = at(inputs.cell_samples, step);
    if (!reference || !now) return std::nullopt;
    for (const int64_t id : sorted(*reference))
      if (!expected.insert(id).second) return std::nullopt;  // the next epoch
    for (const int64_t id : sorted(*now))
      if (!taken.insert(id).second) return id;
  }
}

/// Which of two mistakes another permutation is: of some ranks, whose shards then meet those of others; or one of the run's own.
Answer permutation_differs(const CauseInputs& inputs, const Samples& samples) {
  if (!is_of_another_permutation(inputs, samples)) return {};
  const std::optional<int64_t> twice = taken_twice(inputs);
  const std::string what =
      fmt::format("{} of {} samples differ from the reference's, on rank {}, and match none seen at other steps",
                  samples.extra.size(), samples.batch.size(), fmt::join(samples.differing, ", "));
  if (samples.differing.size() < samples.now.size() || (twice && samples.now.size() > 1)) {
    return made("sampler-seed-differs", 0.7, "{}: another permutation{}", what,
                twice ? fmt::format(", so that ranks take sample {} twice", *twice) : "");
  }
  if (twice) return {};
  return made("shuffle-differs", 0.7,
              "{}, and each comes once: the run's ranks share one permutation, which is not the reference's", what);
}

template <auto rule>
constexpr Rule of_samples = given<samples_of, rule>;

// Rows of led runs, by their contents.

/// What a rank's forward passes got in a step, by the contents of rows.
Ids contents_at(const std::string& dir, int rank, int64_t step) {
  const nlohmann::json steps = rows_of(dir, rank).value("contents", nlohmann::json::object());
  return steps.is_object() ? json_as<Ids>(steps.value(std::to_string(step), nlohmann::json())).value_or(Ids()) : Ids();
}

bool begins_with(const Ids& whole, const Ids& part) {
  return part.size() < whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

/// What forward passes get, by the contents of rows: of both runs' steps the ranks' rows, the reference's shared out as
/// the run's ranks have them.
std::pair<SampleHistory, SampleHistory> row_histories(const std::string& reference, const std::string& run) {
  std::pair<SampleHistory, SampleHistory> both;
  for (const auto& [dir, history] : {std::pair(&reference, &both.first), std::pair(&run, &both.second)}) {
    for (std::size_t rank = 0;; ++rank) {
      const nlohmann::json json = rows_of(*dir, static_cast<int>(rank));
      const nlohmann::json steps = json.value("contents", nlohmann::json::object());
      if (!steps.is_object() || steps.empty()) break;
      for (const auto& [step, rows] : steps.items())
        if (auto& batch = (*history)[std::stoll(step)]; batch.size() == rank)
          batch.push_back(json_as<Ids>(rows).value_or(Ids()));
    }
  }
  for (auto& [step, batch] : both.first) {
    const ByRank& here = both.second[step];
    const std::set<Ids> once(here.begin(), here.end());
    std::multiset<int64_t> left;
    for (const auto& rank : batch) left.insert(rank.begin(), rank.end());
    // Ranks that hold one model together take the same.
    if (const Ids rows = sorted({once.begin(), once.end()}); std::ranges::equal(rows, left)) batch = here;
    if (batch.size() >= here.size()) continue;
    batch.assign(here.size(), {});
    std::size_t others = 0;
    for (std::size_t rank = 0; rank < here.size(); ++rank) {
      const std::multiset<int64_t> own(here[rank].begin(), here[rank].end());
      ++others;
      if (!std::ranges::includes(left, own)) continue;
      --others, batch[rank] = here[rank];
      for (const int64_t row : own) left.erase(left.find(row));
    }
    const std::size_t share = others > 0 ? left.size() / others : 0;
    for (Ids& own : batch)
      for (; own.size() < share && !left.empty(); left.erase(left.begin())) own.push_back(*left.begin());
  }
  return both;
}

/// Causes that rows show whatever was made of them; those of an order only if rows are others of the reference's, and
/// not data that noise was added to.
constexpr std::string_view kOfContents[] = {"shards-identical",    "shards-overlap", "rank-behind-data",
                                            "set-epoch-forgotten", "sample-dropped", "sample-duplicated"};
constexpr std::string_view kOfOrder[] = {"sampler-seed-differs", "shuffle-differs"};

}  // namespace

Answer some_parameters_not_updated(const CauseInputs& inputs) {
  const auto samples = samples_of(inputs);
  if (!samples || !holds_rows_of_several_steps(inputs, *samples)) return {};
  std::vector<std::string> without;
  std::size_t updated = 0;
  for (const Record* expected : records_of(inputs.reference->ranks[0], Phase::applied_gradients)) {
    const auto taken = std::ranges::count_if(inputs.cell->ranks, [&](const StepRecords& rank) { return find_record(rank, Phase::applied_gradients, expected->name) != nullptr; });
    if (taken == 0) without.push_back(expected->name);
    else if (taken == std::ssize(inputs.cell->ranks)) ++updated;
    else
      return {};
  }
  if (without.empty() || updated == 0) return {};
  return told("step {} has the rows of several steps of the reference, and an optimizer took the gradients of {} "
              "parameters in it and not those of {}: {} first",
              inputs.difference.divergence.step, updated, without.size(), without.front());
}

std::span<const Hypothesis> sample_hypotheses() {
  static constexpr Hypothesis kTable[] = {
      {"global-batch-times-world", kInSamples, kRanks, kExact, of_samples<global_batch_times_world>},
      {"padding-at-epoch-end", kInSamples, kNothing, kExact, of_samples<padding_at_epoch_end>},
      {"position-lost", kInSamples, kNothing, kExact, of_samples<position_lost>},
      {"set-epoch-forgotten", kInSamples, kNothing, kExact, of_samples<set_epoch_forgotten_on_some>},
      {"set-epoch-forgotten", kInSamples, kNothing, kExact, set_epoch_forgotten},
      {"shards-identical", kInSamples, kRanks, kExact, of_samples<shards_identical>},
      {"rank-behind-data", kInSamples, kNothing, kExact, of_samples<rank_behind_data>},
      {"sample-dropped", kInSamples, kNothing, kExact, of_samples<sample_dropped>},
      {"sample-duplicated", kInSamples, kNothing, kExact, of_samples<sample_duplicated>},
      {"sample-replaced", kInSamples, kNothing, kExact, of_samples<sample_replaced>},
      {"shards-overlap", kInSamples, kRanks, kStrong, of_samples<shards_overlap>},
      {"shuffle-differs", kInSamples, kNothing, 0.95, of_samples<shuffle_differs>},
      {"sampler-seed-differs shuffle-differs", kInSamples, kNothing, 0.7, of_samples<permutation_differs>},
  };
  return kTable;
}

}  // namespace lockstep::causes

namespace lockstep {

std::optional<Cause> name_cause_of_rows(const std::string& reference, const std::string& run, int64_t step) {
  using namespace causes;
  CauseInputs inputs;
  std::tie(inputs.reference_samples, inputs.cell_samples) = row_histories(reference, run);
  const ByRank *there = at(inputs.reference_samples, step), *here = at(inputs.cell_samples, step);
  if (!there || there->empty() || here->size() < 2 || *there == *here) return std::nullopt;
  const Ids batch = sorted(*there), now = sorted(*here);
  if (batch.empty() || batch.front() == batch.back()) return std::nullopt;
  inputs.difference.phase = Phase::samples;
  inputs.difference.divergence.step = step;
  inputs.reference.emplace().ranks.resize(there->size());
  inputs.cell.emplace().ranks.resize(here->size());
  const std::optional<Cause> cause = name_cause(inputs);
  const auto is_of_another_step = [&](int64_t row) {
    return std::ranges::any_of(inputs.reference_samples, [&](const auto& each) {
      return each.first != step && std::ranges::binary_search(sorted(each.second), row);
    });
  };
  const auto is_in = [&](const auto& codes) {
    return cause && std::ranges::find(codes, cause->code) != std::end(codes);
  };
  const bool others = std::ranges::any_of(now, [&](int64_t row) {
    return !std::ranges::binary_search(batch, row) && is_of_another_step(row);
  });
  // A rank that has the reference's first rows may draw rows, as the others do, and not take its part of an order.
  const bool draws = begins_with(contents_at(reference, 0, step), contents_at(run, 0, step));
  if (!is_in(kOfContents) && !(is_in(kOfOrder) && others && !draws)) return std::nullopt;
  return made(cause->code, cause->confidence, "The rows that forward passes get show it by their contents, at step {}.",
              step);
}

}  // namespace lockstep
