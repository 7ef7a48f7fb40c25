// Causes of wrong random streams: keys are recomputed under each hypothesis and compared with the recorded
// fingerprints.

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/base/hashing.h"
#include "harness/verdict/causes/rules.h"
#include "harness/verdict/compare/step_pairs.h"
#include "harness/verdict/config/seeds.h"

namespace lockstep::causes {
namespace {

/// One stream of one rank at one step.
struct Use {
  uint64_t hash = 0;
  double draws = 0;
  std::vector<int64_t> ids;  ///< of the rank's samples
};

std::vector<Use> uses_of(const std::optional<StepOfRun>& step, const std::string& stream) {
  std::vector<Use> uses;
  if (!step) return uses;
  for (const StepRecords& rank : step->ranks) {
    Use use;  // A rank without the stream drew nothing from it.
    for (const Record& record : rank.records) {
      if (record.phase == Phase::samples) use.ids = record.ids;
      if (record.phase != Phase::random || record.name != stream) continue;
      use.hash = record.stats.hash;
      use.draws = record.value;
    }
    uses.push_back(std::move(use));
  }
  return uses;
}

/// The streams of the cell and the reference, and the ranks whose stream is not the one that their samples
/// key.
struct Streams {
  std::string name;
  std::vector<Use> cell, reference, before;
  int64_t step = 0;
};

std::optional<Streams> streams_of(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::random) return std::nullopt;
  Streams streams;
  streams.name = inputs.difference.divergence.where;
  streams.step = inputs.difference.divergence.step;
  streams.cell = uses_of(inputs.cell, streams.name);
  streams.reference = uses_of(inputs.reference, streams.name);
  streams.before = uses_of(inputs.cell_before, streams.name);
  if (streams.cell.empty() || streams.reference.empty()) return std::nullopt;
  return streams;
}

double draws_of(const std::vector<Use>& uses) {
  double sum = 0;
  for (const Use& use : uses) sum += use.draws;
  return sum;
}

uint64_t hash_of(const std::vector<Use>& uses) {
  uint64_t sum = 0;
  for (const Use& use : uses) sum += use.hash;
  return sum;
}

/// What keys a stream: which mode, at which step, for which rank.
struct Keying {
  RankSeed mode = RankSeed::keyed;
  int64_t seed = 0, step = 0;
  int rank = 0;
};

uint64_t fingerprint(uint32_t purpose, const Keying& keying, const std::vector<int64_t>& ids) {
  const uint64_t base = stream_base(keying.mode, keying.seed, keying.rank);
  std::vector<uint64_t> keys;
  for (std::size_t row = 0; row < ids.size(); ++row) {
    const auto who =
        static_cast<uint64_t>(keying.mode == RankSeed::keyed ? ids[row] : static_cast<int64_t>(row));
    keys.push_back(stream_row_key(base, purpose, keying.step, who));
  }
  return stream_fingerprint(keys);
}

/// The purpose under which keys by sample give the reference's fingerprint; nothing if none does.
std::optional<uint32_t> purpose_of(const CauseInputs& inputs, const Streams& streams) {
  if (!inputs.reference_config || !inputs.cell_config) return std::nullopt;
  for (uint32_t purpose = 1; purpose <= 16; ++purpose) {
    uint64_t sum = 0;
    for (std::size_t rank = 0; rank < streams.reference.size(); ++rank) {
      sum += fingerprint(
          purpose,
          {RankSeed::keyed, stream_seed(*inputs.reference_config), streams.step, static_cast<int>(rank)},
          streams.reference[rank].ids);
    }
    if (sum == hash_of(streams.reference)) return purpose;
  }
  return std::nullopt;
}

/// Ranks whose fingerprint is not the one keyed by their samples; all if that is not known.
std::vector<std::size_t> wrong_ranks(const CauseInputs& inputs, const Streams& streams) {
  std::vector<std::size_t> wrong;
  const auto purpose = purpose_of(inputs, streams);
  for (std::size_t rank = 0; rank < streams.cell.size(); ++rank) {
    if (purpose &&
        fingerprint(*purpose,
                    {RankSeed::keyed, stream_seed(*inputs.cell_config), streams.step, static_cast<int>(rank)},
                    streams.cell[rank].ids) == streams.cell[rank].hash) {
      continue;
    }
    wrong.push_back(rank);
  }
  return wrong;
}

std::optional<Cause> same_stream_on_all_ranks(const CauseInputs& inputs) {
  const auto streams = streams_of(inputs);
  if (is_of_a_generator(inputs.difference.divergence.where) || !streams || streams->cell.size() < 2) return std::nullopt;
  for (const Use& use : streams->cell) {
    if (use.hash != streams->cell[0].hash || use.ids.empty() || use.draws == 0) return std::nullopt;
  }
  return made("same-stream-on-all-ranks", kExact,
              fmt::format("{}: all {} ranks drew from the stream {}", streams->name, streams->cell.size(),
                          hex16(streams->cell[0].hash)));
}

std::optional<Cause> stream_keyed_by_rank(const CauseInputs& inputs) {
  const auto streams = streams_of(inputs);
  if (!streams || streams->cell.size() < 2) return std::nullopt;
  const auto purpose = purpose_of(inputs, *streams);
  if (!purpose || draws_of(streams->cell) != draws_of(streams->reference)) return std::nullopt;
  for (const std::size_t rank : wrong_ranks(inputs, *streams)) {
    const Keying keying{RankSeed::plus_rank, stream_seed(*inputs.cell_config), streams->step,
                        static_cast<int>(rank)};
    if (fingerprint(*purpose, keying, streams->cell[rank].ids) != streams->cell[rank].hash)
      return std::nullopt;
  }
  return made(
      "stream-keyed-by-rank", kExact,
      fmt::format("{}: the keys of the recorded streams are made of seed {} + rank and the row's position, not of the "
                  "samples",
                  streams->name, inputs.cell_config->seed));
}

/// The size of a run's gradients at a step, over rank 0's reduced ones; nothing where statistics were not kept.
std::optional<double> gradient_size(const StepOfRun& step) {
  double squares = 0;
  bool any = false;
  for (const Record& record : step.ranks[0].records) {
    if (record.phase != Phase::reduced_gradients || record.is_scalar) continue;
    if (!record.has_stats) return std::nullopt;
    squares += record.stats.norm * record.stats.norm;
    any = true;
  }
  return any ? std::optional(std::sqrt(squares)) : std::nullopt;
}

/// A stream from which a second pass drew: the forward pass was right, and the loss with it, and the gradients are not.
std::optional<Cause> masks_drawn_again(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::random || !inputs.reference || !inputs.cell) return std::nullopt;
  constexpr double kSameLoss = 1e-5, kOtherGradient = 1e-4;
  const std::string& stream = inputs.difference.divergence.where;
  const std::vector<Use> expected = uses_of(inputs.reference, stream), actual = uses_of(inputs.cell, stream);
  const double before = draws_of(expected), now = draws_of(actual);
  if (!(before > 0) || !(now > before) || now > 2 * before) return std::nullopt;
  const auto loss_a = mean_loss(*inputs.reference), loss_b = mean_loss(*inputs.cell);
  const auto size_a = gradient_size(*inputs.reference), size_b = gradient_size(*inputs.cell);
  if (!loss_a || !loss_b || !size_a || !size_b) return std::nullopt;
  if (std::abs(*loss_a - *loss_b) > kSameLoss * std::max(1.0, std::abs(*loss_a)) || std::abs(*size_a - *size_b) <= kOtherGradient * *size_a) return std::nullopt;
  return made("masks-drawn-again", kExact,
              fmt::format("{}: {} draws where the reference takes {}; the loss is the same ({}), and the gradients are not (norm {} and {}): numbers were drawn again behind the "
                          "forward pass",
                          stream, exact_number(now), exact_number(before), short_number(*loss_b), short_number(*size_b), short_number(*size_a)));
}

/// A generator that the forward pass draws from begins in a state that it has had at an earlier step, and has left since, on every rank: the
/// process was seeded anew within the step.
std::optional<Cause> seeded_anew_within_step(const CauseInputs& inputs) {
  const int64_t step = inputs.difference.divergence.step;
  const auto now = inputs.cell_generators.find(step);
  if (inputs.difference.phase != Phase::random || !is_of_a_generator(inputs.difference.divergence.where) || now == inputs.cell_generators.end()) return std::nullopt;
  for (const auto& [stream, states] : now->second) {
    if (stream == inputs.difference.divergence.where || states.empty()) continue;
    const std::vector<Use> uses = uses_of(inputs.cell, stream);
    if (uses.size() != states.size() || !std::ranges::all_of(uses, [](const Use& use) { return use.draws > 0; })) continue;
    bool left_since = false;
    for (auto earlier = std::make_reverse_iterator(now); earlier != inputs.cell_generators.rend(); ++earlier) {
      const auto then = earlier->second.find(stream);
      if (then == earlier->second.end()) continue;
      if (then->second != states) {
        left_since = true;
      } else if (left_since) {
        return made("stream-not-advanced", kExact,
                    fmt::format("{}: every rank begins the forward pass of step {} in the state of step {}, which it had left since; from {} it takes another number of draws", stream,
                                step, earlier->first, inputs.difference.divergence.where));
      } else {
        break;
      }
    }
  }
  return std::nullopt;
}

std::optional<Cause> draws_differ(const CauseInputs& inputs, bool extra) {
  const auto streams = streams_of(inputs);
  // Where a generator is put back, the count of its draws is that of the states between.
  if (!streams || masks_drawn_again(inputs) || seeded_anew_within_step(inputs)) return std::nullopt;
  const double expected = draws_of(streams->reference), actual = draws_of(streams->cell);
  if (expected == actual || (actual > expected) != extra) return std::nullopt;
  // A stream that the reference never draws from is another method, not a draw too many.
  if (expected == 0) return std::nullopt;
  // Draws for its rows: of ranks that do not take the reference's number a row.
  double rows = 0;
  for (const Use& use : streams->reference) rows += static_cast<double>(use.ids.size());
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < streams->cell.size(); ++rank) {
    if (rows > 0 && streams->cell[rank].draws != expected / rows * static_cast<double>(streams->cell[rank].ids.size())) ranks.push_back(rank);
  }
  return made(extra ? "extra-draws" : "draws-missing", kExact,
              fmt::format("{}: {} draws on all ranks together, but {} in the reference{}", streams->name, exact_number(actual), exact_number(expected),
                          ranks.empty() ? "" : fmt::format("; rank {} does not take the reference's number for its rows", fmt::join(ranks, ", "))));
}

std::optional<Cause> extra_draws(const CauseInputs& inputs) { return draws_differ(inputs, true); }
std::optional<Cause> draws_missing(const CauseInputs& inputs) { return draws_differ(inputs, false); }

/// The earlier step whose keys give a rank's fingerprint, or -1.
int64_t old_step_of(const CauseInputs& inputs, const Streams& streams, std::size_t rank) {
  const Use& use = streams.cell[rank];
  if (const auto purpose = purpose_of(inputs, streams)) {
    for (int64_t step = streams.step - 1; step >= 0; --step) {
      const Keying keying{RankSeed::keyed, stream_seed(*inputs.cell_config), step, static_cast<int>(rank)};
      if (fingerprint(*purpose, keying, use.ids) == use.hash) return step;
    }
  }
  const bool repeats = rank < streams.before.size() && streams.before[rank].hash == use.hash;
  return repeats && !use.ids.empty() ? streams.step - 1 : -1;
}

std::optional<Cause> stream_not_advanced(const CauseInputs& inputs) {
  const auto streams = streams_of(inputs);
  if (is_of_a_generator(inputs.difference.divergence.where) || !streams) return std::nullopt;
  const std::vector<std::size_t> wrong = wrong_ranks(inputs, *streams);
  int64_t old = -1;
  std::vector<std::size_t> stuck;
  for (const std::size_t rank : wrong) {
    const int64_t step = old_step_of(inputs, *streams, rank);
    if (step < 0) continue;
    old = step;
    stuck.push_back(rank);
  }
  // Without keys to recompute, ranks that are right cannot be told from the others.
  if (stuck.empty() || (purpose_of(inputs, *streams) && stuck.size() != wrong.size())) return std::nullopt;
  return made(
      "stream-not-advanced", kExact,
      fmt::format("{}: rank {} drew from the stream of step {}", streams->name, fmt::join(stuck, ", "), old));
}

/// A generator that begins a step as it began an earlier one, on every rank that the reference differs from.
std::optional<Cause> generator_not_advanced(const CauseInputs& inputs) {
  const std::string& stream = inputs.difference.divergence.where;
  const int64_t step = inputs.difference.divergence.step;
  const auto now = inputs.cell_generators.find(step);
  if (inputs.difference.phase != Phase::random || !is_of_a_generator(stream) || now == inputs.cell_generators.end()) return std::nullopt;
  const auto states = now->second.find(stream);
  if (states == now->second.end()) return std::nullopt;
  for (auto earlier = std::make_reverse_iterator(now); earlier != inputs.cell_generators.rend(); ++earlier) {
    const auto then = earlier->second.find(stream);
    if (earlier->first < 0 || then == earlier->second.end()) continue;
    std::vector<int> stuck;
    for (const auto& [rank, state] : states->second) {
      const auto old = then->second.find(rank);
      if (old != then->second.end() && old->second == state) stuck.push_back(rank);
    }
    const bool of_all = stuck.size() == states->second.size(), of_told = std::ranges::find(stuck, inputs.difference.divergence.rank) != stuck.end();
    if (!of_all && !of_told) continue;
    return made("stream-not-advanced", kExact, fmt::format("{}: rank {} begins step {} in the state of step {}", stream, fmt::join(stuck, ", "), step, earlier->first));
  }
  return std::nullopt;
}

/// Ranks whose generators are in one state, where each should have its own.
std::optional<Cause> same_generator_on_all_ranks(const CauseInputs& inputs) {
  const Divergence& told = inputs.difference.divergence;
  if (inputs.difference.phase != Phase::random || !is_of_a_generator(told.where)) return std::nullopt;
  const auto now = inputs.cell_generators.find(told.step);
  const auto states = now == inputs.cell_generators.end() ? nullptr : &now->second;
  if (!states || !states->contains(told.where)) return std::nullopt;
  const auto found = states->find(told.where);
  if (found->second.size() < 2) return std::nullopt;
  const uint64_t first = found->second.begin()->second;
  if (!std::ranges::all_of(found->second, [&](const auto& each) { return each.second == first; })) return std::nullopt;
  const auto distinct_in_reference = [&] {
    std::set<uint64_t> hashes;
    for (const Use& use : uses_of(inputs.reference, told.where)) hashes.insert(use.hash);
    return hashes.size() > 1;
  };
  if (!(inputs.cell && declared_state(*inputs.cell, told.where) == "rank") && !distinct_in_reference()) return std::nullopt;
  return made("same-stream-on-all-ranks", kExact, fmt::format("{}: all {} ranks are in the state {}", told.where, found->second.size(), hex16(first)));
}

std::optional<Cause> dropout_not_replayed(const CauseInputs& inputs) {
  const auto streams = streams_of(inputs);
  if (!streams || streams->name.find("replay") == std::string::npos) return std::nullopt;
  return made("dropout-not-replayed", kFits,
              fmt::format("{}: the second pass drew from {}, but the first from {}", streams->name,
                          hex16(hash_of(streams->cell)), hex16(hash_of(streams->reference))));
}

std::optional<Cause> random_stream_differs(const CauseInputs& inputs) {
  const auto streams = streams_of(inputs);
  if (!streams) return std::nullopt;
  std::string where = "on all ranks together";
  const std::vector<std::size_t> wrong = wrong_ranks(inputs, *streams);
  if (!wrong.empty() && wrong.size() < streams->cell.size()) {
    where = fmt::format("on rank {}", fmt::join(wrong, ", "));
  }
  const double expected = draws_of(streams->reference), actual = draws_of(streams->cell);
  const std::string draws = expected == actual ? "equally many draws"
                                               : fmt::format("{} draws where it took {}", exact_number(actual), exact_number(expected));
  return made("random-stream-differs", kGeneral,
              fmt::format("{}: fingerprint {} where the reference has {}, {}, with {}", streams->name,
                          hex16(hash_of(streams->cell)), hex16(hash_of(streams->reference)), where, draws));
}

constexpr Rule kRandomRules[] = {
    same_stream_on_all_ranks, stream_keyed_by_rank, masks_drawn_again,    extra_draws,          draws_missing,
    stream_not_advanced,      generator_not_advanced, seeded_anew_within_step, same_generator_on_all_ranks, dropout_not_replayed, random_stream_differs};

/// A forward pass that draws nothing on any rank, where it drew at earlier steps and the reference's draws: dropout is off.
std::optional<Cause> forward_draws_missing(const CauseInputs& inputs) {
  if (is_exact(inputs.difference.phase) || !inputs.reference || !inputs.cell) return std::nullopt;
  const int64_t step = inputs.difference.divergence.step;
  for (const Record* record : records_of(inputs.reference->ranks[0], Phase::random)) {
    if (!is_of_a_generator(record->name) || name_of_generator(record->name) != "model") continue;
    const double expected = draws_of(uses_of(inputs.reference, record->name)), actual = draws_of(uses_of(inputs.cell, record->name));
    const bool drew_before = std::ranges::any_of(inputs.cell_generators, [&](const auto& each) { return each.first < step && each.second.contains(record->name); });
    if (!(expected > 0) || actual > 0 || !drew_before) continue;
    return made("draws-missing", kExact,
                fmt::format("{}: the forward pass of step {} takes no number on any rank, where the reference's takes {} and the run's own took some before", record->name, step,
                            exact_number(expected)));
  }
  return std::nullopt;
}

constexpr Rule kForwardDrawRules[] = {forward_draws_missing};

}  // namespace

std::span<const Rule> random_rules() { return kRandomRules; }
std::span<const Rule> forward_draw_rules() { return kForwardDrawRules; }

}  // namespace lockstep::causes
