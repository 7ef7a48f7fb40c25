#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"

// A run's config as text: what its hash is taken of, what run.json holds, what reports list.

namespace lockstep {

/// Every field as JSON with sorted keys: equal configs give equal text.
std::string canonical_json(const RunConfig& config);

/// 16 hex digits of the XXH3 hash of canonical_json.
std::string config_hash(const RunConfig& config);

/// The same of what is trained alone: neither how many ranks share a step's rows and by which means, nor what is written
/// down and kept, nor where the run stops. Runs of one such hash go on from each other's checkpoints; with native
/// arithmetic another number of ranks rounds differently from there on.
std::string training_hash(const RunConfig& config);

/// The inverse of canonical_json. Throws ConfigError on unknown keys, wrong types and values out of range.
RunConfig run_config_from_json(const std::string& text, const std::string& file_name);

/// Every field as (dotted key, value in words), the trainer's own behind the core's: ("data.source",
/// "basic_motions").
std::vector<std::pair<std::string, std::string>> config_fields(const RunConfig& config);

/// Equal in every field.
bool same_config(const RunConfig& a, const RunConfig& b);

// The keys in which two runs are configured otherwise.

/// A key that can change what is trained, with both values in words. `declared`: an axis of the matrix or an expectation
/// names it, so that the difference is what is asked about.
struct ConfigDifference {
  std::string key, reference, cell;
  bool declared = false;
};

/// In the order of the keys. How a step's rows are divided among ranks is no difference, nor what is written down, kept or
/// watched, nor a planted mistake, which stands for one in the code; another number of rows a step is one, of `layout`.
/// Nothing where the reference is computed by the loss's plain form, which follows from the cell. `declared`: see
/// ConfigDifference.
std::vector<ConfigDifference> config_differences(const RunConfig& reference, const RunConfig& cell,
                                                 std::span<const std::string> declared = {});

/// Two configs of which either may be unknown, and the keys in which they may differ: see ConfigDifference.
struct ConfigPair {
  const RunConfig* reference = nullptr;
  const RunConfig* cell = nullptr;
  std::vector<std::string> declared = {};

  bool both_known() const { return reference && cell; }
};
/// The same of a pair; nothing where one of the two is unknown.
std::vector<ConfigDifference> config_differences(const ConfigPair& configs);

/// "weight_decay 0 / 0.1, clip_norm 0 / 1": the reference's value first.
std::string differences_text(std::span<const ConfigDifference> differences);

// The learning rate of a step and Adam's other numbers, as training takes them and as the judge expects them.

/// Learning rate of a step: lr * lr_scale * rule(world size) * schedule(step of steps).
double learning_rate(const RunConfig& config, int64_t step);

/// What Adam's update takes beside the rate.
struct AdamNumbers {
  double beta1 = 0, beta2 = 0, eps = 0;
};

/// The config's own numbers, except under the rule adam_sqrt: with k ranks, whose batch is k times one
/// rank's, 1 - beta1 and 1 - beta2 are multiplied by k and eps is divided by sqrt k, besides the rate times
/// sqrt k (Malladi et al. 2022, arXiv 2205.10287, definition 4). Betas stay in [0, 1).
AdamNumbers adam_numbers(const RunConfig& config);

/// Does the rule leave Adam any memory: k (1 - beta) < 1 for both betas? True of every other rule.
bool fits_adam_sqrt(const RunConfig& config);

// Which keys of a run say what it learns, and which how it is executed, watched or compared.

/// False of seed, trace, snapshots, evaluation, time limits, the way ranks are started and hold their buckets,
/// and how rows are fetched: two runs that differ in these alone train towards the same.
bool decides_learning(std::string_view key);

/// False of the seed and of what says when a run stops, what it writes down and keeps, how it is watched and begun, and which fault is
/// planted in it: two correct runs of one build and seed that differ in these alone have equal bits.
bool decides_bits(std::string_view key);

/// Do two correct runs of these configs have equal bits, if one build made both?
bool promise_equal_bits(const RunConfig& a, const RunConfig& b);

/// The rows of keys that decide learning as one text, whatever their order: equal for runs that train towards the same.
///
///   rows  every key of a run with its value (config_fields, or the rows of a report)
std::string learning_text(std::vector<std::pair<std::string, std::string>> rows);

// Lists of seeds as users write them.

/// "A..B" (both included), "a,b,c" or "n". Returns what is wrong, or an empty text.
std::string parse_seeds(std::string_view text, std::vector<int64_t>& seeds);

/// The same from a config: also a list.
void read_seeds(const YamlNode& node, std::vector<int64_t>& seeds, Problems& problems);

// Keys of the random streams: what a draw depends on, as ranks take it and as the judge recomputes it.

/// The finalizer of MurmurHash3's 64-bit variant after a golden-ratio step, as in SplitMix64.
uint64_t mix_key(uint64_t x);

/// The seed of a run's random streams: its own, or another one for an A/A pair that differs in its draws.
int64_t stream_seed(const RunConfig& config);

/// Where a rank's keys begin: from the seed, and the rank too if streams are keyed by rank.
uint64_t stream_base(RankSeed mode, int64_t seed, int rank);

/// Key of a row's stream. `who` is the sample's id if streams are keyed by sample, else the row's place on
/// its rank.
uint64_t stream_row_key(uint64_t base, uint32_t purpose, int64_t step, uint64_t who);

/// A fingerprint of a set of row streams that adds up over ranks.
uint64_t stream_fingerprint(std::span<const uint64_t> row_keys);

}  // namespace lockstep
