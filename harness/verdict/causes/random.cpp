// Causes of wrong random streams: keys are recomputed under each hypothesis and compared with the recorded
// fingerprints.

#include <set>

#include <fmt/format.h>

#include "harness/base/hex.h"
#include "harness/verdict/causes/rules.h"
#include "harness/verdict/config/stream_keys.h"

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
  if (!streams || streams->cell.size() < 2) return std::nullopt;
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

std::optional<Cause> draws_differ(const CauseInputs& inputs, bool extra) {
  const auto streams = streams_of(inputs);
  if (!streams) return std::nullopt;
  const double expected = draws_of(streams->reference), actual = draws_of(streams->cell);
  if (expected == actual || (actual > expected) != extra) return std::nullopt;
  // A stream that the reference never draws from is another method, not a draw too many.
  if (expected == 0) return std::nullopt;
  return made(extra ? "extra-draws" : "draws-missing", kExact,
              fmt::format("{}: {} draws on all ranks together, but {} in the reference", streams->name,
                          exact_number(actual), exact_number(expected)));
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
  if (!streams) return std::nullopt;
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
    same_stream_on_all_ranks, stream_keyed_by_rank, extra_draws,          draws_missing,
    stream_not_advanced,      dropout_not_replayed, random_stream_differs};

}  // namespace

std::span<const Rule> random_rules() { return kRandomRules; }

}  // namespace lockstep::causes
