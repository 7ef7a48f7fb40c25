#pragma once
// Made-up runs, written by TraceWriter, with hooks for faults. FakeRun: all that the judge looks at, each number from a key.
// toy_run: exact enough for every rule on causes, with gradients that are means of rows and a real optimizer step; each
// fault is one small edit of what the ranks hold.

#include <gmock/gmock.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/judge/trace/writer.h"
#include "harness/plan/config/canonical.h"

namespace lockstep::support {

using WriteSteps = std::function<void(TraceWriter& writer, int rank)>;

/// Writes rank-<r>.trace of every rank into `dir`, which is made; the header's rank is set.
void write_ranks(const std::string& dir, TraceHeader header, const WriteSteps& steps, bool finish = true);

/// A number in [-1, 1) from a key.
double keyed(uint64_t a, uint64_t b, uint64_t c = 0);
std::vector<int64_t> steps_up_to(int64_t count);

/// What one rank records at one step; hooks may change any of it before it is written.
struct FakeStep {
  int64_t step = 0;
  int rank = 0, world_size = 1;
  std::vector<int64_t> samples;
  std::vector<std::pair<std::string, uint64_t>> streams;
  std::vector<std::pair<std::string, double>> controls;
  std::vector<int64_t> columns;  ///< sample ids
  std::vector<float> energies;   ///< [samples, columns]
  double loss = 0;
  std::vector<std::pair<std::string, std::vector<float>>> local_gradients, reduced_gradients, parameters;
  std::vector<std::pair<std::string, std::vector<float>>> optimizer_state;  ///< written if not empty
  std::vector<CollectiveRecord> collectives;
  double gradient_norm = 0;
  std::vector<std::pair<std::string, double>> evaluations;
  std::vector<std::pair<std::string, std::vector<float>>> term_sums;  ///< written if not empty
  bool write = true;                                                  ///< false: the rank skips the step
};

struct FakeRun {
  int world_size = 3;
  int global_batch = 24;       ///< must divide by world_size
  std::vector<int64_t> steps;  ///< which steps are written
  bool local_negatives = false;
  bool forced = false;  ///< gradients, energies and columns are kept whole
  bool term_sums = false;
  double noise = 0;  ///< relative rounding noise of this run's numbers
  bool wide = false;  ///< tensors are written in float64
  std::pair<std::string, double> wide_scale = {"", 1};  ///< a parameter whose gradients are written times this
  uint64_t noise_seed = 0;
  TraceLevel level = TraceLevel::hash;
  std::function<void(FakeStep&)> fault;
  bool finish = true;
  std::string config_hash = "hash";
  std::string trainer = "energy";
};

/// The batch's sample id in row `row` of the global batch.
int64_t fake_sample(int64_t step, int64_t row);
FakeStep fake_step(const FakeRun& run, int64_t step, int rank);
void write_fake_run(const std::string& dir, const FakeRun& run);

/// Each tensor whose name begins so, times the factor.
void scale(std::vector<std::pair<std::string, std::vector<float>>>& list, const std::string& name, float factor);

/// The tensor of that name in a list.
std::vector<float>& tensor_of(std::vector<std::pair<std::string, std::vector<float>>>& list, const std::string& name);

using Tensors = std::map<std::string, std::vector<float>>;

/// What one rank holds at one step.
struct ToyRank {
  int rank = 0;
  std::vector<int64_t> samples, columns;
  std::map<std::string, std::pair<uint64_t, uint64_t>> streams;  ///< hash, draws
  double rate = 0, loss = 0, row_weight = 0, temperature = 0.5, norm = 0, buffer = 0;
  std::vector<float> energies;
  std::vector<double> row_losses;
  std::vector<CollectiveRecord> collectives;
  Tensors local, reduced, parameters;
};

struct ToyStep {
  int64_t step = 0;
  const RunConfig* config = nullptr;
  std::vector<ToyRank> ranks;
  Tensors before, first, second;  ///< state
  int64_t updates() const { return step; }
};

using ToyFault = std::function<void(ToyStep&)>;

/// Where a fault may act; what comes later is computed from what it leaves.
struct ToyFaults {
  ToyFault on_samples, on_forward, on_local, on_reduced, on_parameters;
};

/// The optimizer's step in double, rounded once: as near to the real one as rounding allows.
struct ToyUpdate {
  double rate = 0, factor = 1, decay = 0;
  bool coupled = false, zero_moments = false;
  int64_t count = 1;
};

/// Kinds of records that a trainer may leave out, as bits of a set.
enum ToyEvidence : unsigned {
  kToyLedger = 1,
  kToyStreams = 2,
  kToyRates = 4,
  kToyScores = 8,
  kToyLosses = 16,
  kToyLocal = 32,
  kToyNorm = 64,
  kToySnapshots = 128,
  kToyBuffer = 256,
  kToyAverage = 512,  ///< of the parameters, a buffer; left out unless it is asked for
  kToyUsual = 511,
  kToyAll = 1023,
};

const std::vector<std::pair<std::string, std::size_t>>& toy_parameters();
float toy_value(const std::string& name, std::size_t i, uint64_t a, uint64_t b);
int64_t toy_sample(int64_t step, int64_t row, int rows);
float toy_energy(int64_t row, int64_t column, int64_t step);
std::vector<std::size_t> toy_targets(const ToyRank& rank);
std::vector<double> toy_row_losses(const ToyRank& rank, double tau, const std::vector<std::size_t>& targets);
void toy_loss(ToyRank& rank);
ToyUpdate toy_update_of(const ToyStep& it, const ToyRank& rank);
void toy_apply(ToyStep& it, ToyRank& rank, const ToyUpdate& how);
ToyStep toy_step(const RunConfig& config, int64_t step, const ToyFaults& faults);

/// Writes the traces of a run: free of steps 0 to 7, or forced at steps 0, 1, 2, 4. `trainer`: as they name it.
void toy_run(const std::string& dir, const RunConfig& config, bool forced, const ToyFaults& faults = {},
             const std::string& trainer = "energy", unsigned evidence = kToyUsual);

// What comparisons say.

/// "same: 6 forced steps" of the fact of that name; empty if there is none.
inline std::string fact_of(const Mechanism& mechanism, std::string_view name) {
  for (const Fact& fact : mechanism.facts)
    if (fact.name == name) return std::string(to_word(fact.mark)) + (fact.text.empty() ? "" : ": " + fact.text);
  return "";
}

/// Where and why a test expects two runs to part, as far as it asks.
struct Parting {
  std::optional<int64_t> step = {};
  std::optional<std::string> phase = {};
  std::optional<int> rank = {};
  std::optional<std::string> where = {};
  std::optional<DivergenceKind> kind = {};
  std::optional<std::string> expected = {}, actual = {}, parted = {};
  std::optional<std::string> cause = {};  ///< its code
};

/// What is planted in the steps of a FakeRun, where they must part for it, and words of the sentence.
struct PlantedStep {
  const char* what;
  std::function<void(FakeStep&)> fault;
  Parting parting;
  std::string says = "";
};

MATCHER_P(PartsAt, parting, "parts there") {
  const Mechanism& it = arg;
  *result_listener << it.sentence << (it.cause ? "\n" + it.cause->code + ": " + it.cause->evidence : "");
  if (it.verdict != VerdictKind::divergent || !it.first_divergence) return false;
  bool all = true;
  const auto expect = [&](const char* what, const auto& wanted, const auto& found) {
    if (!wanted || *wanted == found) return;
    *result_listener << "\n" << what << " is " << testing::PrintToString(found);
    all = false;
  };
  const Divergence& first = *it.first_divergence;
  expect("step", parting.step, first.step);
  expect("phase", parting.phase, first.phase);
  expect("rank", parting.rank, first.rank);
  expect("where", parting.where, first.where);
  expect("kind", parting.kind, first.kind);
  expect("expected", parting.expected, first.expected);
  expect("actual", parting.actual, first.actual);
  expect("parted", parting.parted, first.parted);
  expect("cause", parting.cause, it.cause ? it.cause->code : std::string());
  return all;
}
/// A mechanism that is divergent, from there on.
inline auto parts_at(const Parting& parting) { return PartsAt(parting); }

}  // namespace lockstep::support
