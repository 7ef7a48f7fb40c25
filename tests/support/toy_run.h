#pragma once
// A toy training run exact enough for every rule on causes: keyed samples, streams, energies, losses,
// gradients that are means of row contributions, and a real optimizer step. Each fault is one small edit of
// what the ranks hold.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/verdict/compare/forced/forced.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/seeds.h"
#include "harness/verdict/trace/writer.h"
#include "tests/support/fake_run.h"

namespace lockstep::support {

using Tensors = std::map<std::string, std::vector<float>>;

inline const std::vector<std::pair<std::string, std::size_t>>& toy_parameters() {
  static const std::vector<std::pair<std::string, std::size_t>> parameters = {
      {"context_encoder.weight", 12}, {"context_encoder.bias", 4}, {"action_encoder.weight", 12},
      {"energy_head.query", 6},       {"energy_head.key", 6},      {"temperature.log_tau", 1}};
  return parameters;
}

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

inline float toy_value(const std::string& name, std::size_t i, uint64_t a, uint64_t b) {
  return static_cast<float>(keyed(std::hash<std::string>{}(name) + i, a, b));
}

inline int64_t toy_sample(int64_t step, int64_t row, int rows) {
  const int64_t epoch = step / 4, place = (step % 4) * rows + row;
  return (place * 7 + epoch * 5 + 3) % (4 * rows);
}

inline std::vector<double> toy_row_losses(const ToyRank& rank, double tau,
                                          const std::vector<std::size_t>& targets) {
  std::vector<double> losses;
  const std::size_t width = rank.columns.size();
  for (std::size_t i = 0; i < rank.samples.size(); ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < width; ++j) sum += std::exp(-rank.energies[i * width + j] / tau);
    losses.push_back(std::log(sum) + rank.energies[i * width + targets[i]] / tau);
  }
  return losses;
}

inline std::vector<std::size_t> toy_targets(const ToyRank& rank) {
  std::vector<std::size_t> targets;
  for (const int64_t id : rank.samples) {
    targets.push_back(static_cast<std::size_t>(std::find(rank.columns.begin(), rank.columns.end(), id) -
                                               rank.columns.begin()));
  }
  return targets;
}

inline float toy_energy(int64_t row, int64_t column, int64_t step) {
  return static_cast<float>(1 + 0.4 * keyed(static_cast<uint64_t>(row), static_cast<uint64_t>(column),
                                            static_cast<uint64_t>(step)));
}

inline void toy_loss(ToyRank& rank) {
  rank.loss = 0;
  for (const double loss : rank.row_losses) rank.loss += rank.row_weight * loss;
}

inline void toy_forward(ToyStep& it) {
  const int world = static_cast<int>(it.ranks.size());
  const int rows = it.config->layout.global_batch();
  std::vector<int64_t> all;
  for (const ToyRank& rank : it.ranks) all.insert(all.end(), rank.samples.begin(), rank.samples.end());
  for (ToyRank& rank : it.ranks) {
    rank.columns = all;
    for (const int64_t id : rank.samples) {
      for (const int64_t column : all) rank.energies.push_back(toy_energy(id, column, it.step));
    }
    rank.row_weight = static_cast<double>(world) / rows;
    rank.row_losses = toy_row_losses(rank, rank.temperature, toy_targets(rank));
    toy_loss(rank);
    const uint64_t s = static_cast<uint64_t>(it.step);
    CollectiveRecord gather{"all_gather", "",
                            "data",       "loss.candidates",
                            -1,           DType::float32,
                            {2, 8},       s * 11 + static_cast<uint64_t>(rank.rank) + 1,
                            s * 13 + 7};
    CollectiveRecord sum{"all_reduce", "sum",          "data", "stats.energy",
                         -1,           DType::float64, {2},    s * 17 + static_cast<uint64_t>(rank.rank) + 1,
                         s * 19 + 5};
    CollectiveRecord give{"broadcast", "",
                          "data",      "stats.buffer",
                          0,           DType::float64,
                          {1},         s * 23 + (rank.rank == 0 ? 900 : static_cast<uint64_t>(rank.rank)),
                          s * 23 + 900};
    if (world > 1) rank.collectives.push_back(gather);
    rank.collectives.push_back(sum);
    rank.collectives.push_back(give);
    rank.buffer = 1 + 0.01 * static_cast<double>(it.step);
  }
}

inline void toy_local(ToyStep& it) {
  const int rows = it.config->layout.global_batch();
  const auto world = static_cast<double>(it.ranks.size());
  for (ToyRank& rank : it.ranks) {
    for (const auto& [name, size] : toy_parameters()) {
      std::vector<double> sum(size, 0);
      for (const int64_t id : rank.samples) {
        for (std::size_t i = 0; i < size; ++i) {
          sum[i] += toy_value(name, i, static_cast<uint64_t>(id) + 1, static_cast<uint64_t>(it.step) + 1);
        }
      }
      for (const double value : sum) rank.local[name].push_back(static_cast<float>(value * world / rows));
    }
  }
}

inline void toy_reduce(ToyStep& it) {
  const auto world = static_cast<float>(it.ranks.size());
  for (const auto& [name, size] : toy_parameters()) {
    std::vector<float> sum(size, 0);
    for (const ToyRank& rank : it.ranks) {
      for (std::size_t i = 0; i < size; ++i) sum[i] += rank.local.at(name)[i] / world;
    }
    for (ToyRank& rank : it.ranks) rank.reduced[name] = sum;
  }
}

/// The optimizer's step in double, rounded once: as near to the real one as rounding allows.
struct ToyUpdate {
  double rate = 0, factor = 1, decay = 0;
  bool coupled = false, zero_moments = false;
  int64_t count = 1;
};

inline ToyUpdate toy_update_of(const ToyStep& it, const ToyRank& rank) {
  const RunConfig& config = *it.config;
  ToyUpdate update;
  update.rate = rank.rate;
  if (config.clip_norm > 0) update.factor = std::min(1.0, config.clip_norm / (rank.norm + 1e-6));
  update.decay = config.weight_decay;
  update.coupled = config.optimizer == OptimizerKind::adam;
  update.count = it.updates() + 1;
  return update;
}

inline void toy_apply(ToyStep& it, ToyRank& rank, const ToyUpdate& how) {
  const RunConfig& config = *it.config;
  for (const auto& [name, size] : toy_parameters()) {
    std::vector<float>& after = rank.parameters[name];
    after.clear();
    for (std::size_t i = 0; i < size; ++i) {
      double p = it.before[name][i], g = rank.reduced[name][i] * how.factor;
      if (config.optimizer == OptimizerKind::sgd || how.coupled) {
        g += how.decay * p;
      } else {
        p *= 1 - how.rate * how.decay;
      }
      if (config.optimizer == OptimizerKind::sgd) {
        after.push_back(static_cast<float>(p - how.rate * g));
        continue;
      }
      double m = how.zero_moments ? 0 : it.first[name][i], v = how.zero_moments ? 0 : it.second[name][i];
      m += (1 - config.beta1) * (g - m);
      v = config.beta2 * v + (1 - config.beta2) * g * g;
      const double count = static_cast<double>(how.count);
      const double root = std::sqrt(v) / std::sqrt(1 - std::pow(config.beta2, count)) + config.eps;
      after.push_back(static_cast<float>(p - how.rate / (1 - std::pow(config.beta1, count)) * m / root));
    }
  }
}

inline ToyStep toy_step(const RunConfig& config, int64_t step, const ToyFaults& faults) {
  ToyStep it;
  it.step = step;
  it.config = &config;
  const int world = config.layout.world_size, rows = config.layout.global_batch();
  for (int rank = 0; rank < world; ++rank) {
    ToyRank own;
    own.rank = rank;
    for (int64_t row = rank; row < rows; row += world) own.samples.push_back(toy_sample(step, row, rows));
    own.rate = learning_rate(config, step);
    it.ranks.push_back(own);
  }
  const auto call = [&](const ToyFault& fault) {
    if (fault) fault(it);
  };
  for (ToyRank& rank : it.ranks) {
    for (const auto& [name, purpose] : {std::pair{"context_noise", 1U}, {"dropout", 2U}}) {
      std::vector<uint64_t> keys;
      for (const int64_t id : rank.samples) {
        keys.push_back(stream_row_key(stream_base(RankSeed::keyed, config.seed, rank.rank), purpose, step,
                                      static_cast<uint64_t>(id)));
      }
      rank.streams[name] = {stream_fingerprint(keys), 96 * rank.samples.size()};
    }
  }
  call(faults.on_samples);
  toy_forward(it);
  call(faults.on_forward);
  toy_local(it);
  call(faults.on_local);
  toy_reduce(it);
  call(faults.on_reduced);
  for (const auto& [name, size] : toy_parameters()) {
    for (std::size_t i = 0; i < size; ++i) {
      const auto s = static_cast<uint64_t>(step);
      it.before[name].push_back(toy_value(name, i, s, 1001));
      it.first[name].push_back(0.1F * toy_value(name, i, s, 1002) * (step > 0));
      it.second[name].push_back(0.01F * (1 + toy_value(name, i, s, 1003)) * (step > 0));
    }
  }
  for (ToyRank& rank : it.ranks) {
    double squares = 0;
    for (const auto& [name, values] : rank.reduced) {
      for (const float value : values) squares += static_cast<double>(value) * value;
    }
    rank.norm = std::sqrt(squares);
    toy_apply(it, rank, toy_update_of(it, rank));
  }
  call(faults.on_parameters);
  return it;
}

inline void toy_write_tensor(TraceWriter& writer, Phase phase, const std::string& name,
                             const std::vector<float>& values, Sharing sharing, bool whole) {
  const std::vector<int64_t> shape = {static_cast<int64_t>(values.size())};
  writer.tensor(phase, name, {values.data(), DType::float32, shape, {}}, sharing, {},
                whole ? Keep::whole : Keep::by_level);
}

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

inline void toy_write(TraceWriter& writer, const ToyStep& it, const ToyRank& rank, bool forced, unsigned evidence) {
  writer.begin_step(it.step);
  if (evidence & kToyLedger) {
    for (const CollectiveRecord& collective : rank.collectives) writer.collective(collective);
  }
  if ((evidence & kToySnapshots) && !forced && rank.rank == 0) {
    for (const auto& [name, size] : toy_parameters()) {
      toy_write_tensor(writer, Phase::snapshot, name, it.before.at(name), Sharing::replicated, true);
      toy_write_tensor(writer, Phase::snapshot, "first_moment/" + name, it.first.at(name),
                       Sharing::replicated, true);
      toy_write_tensor(writer, Phase::snapshot, "second_moment/" + name, it.second.at(name),
                       Sharing::replicated, true);
    }
    const int64_t updates = it.updates();
    const std::vector<int64_t> one{1};
    writer.tensor(Phase::snapshot, "updates", {&updates, DType::int64, one, {}}, Sharing::replicated, {},
                  Keep::whole);
  }
  writer.samples(rank.samples);
  if (evidence & kToyStreams) {
    for (const auto& [name, use] : rank.streams) writer.random(name, use.first, use.second);
  }
  if (evidence & kToyRates) writer.scalar(Phase::control, "learning_rate", rank.rate, Sharing::replicated);
  const Keep keep = forced ? Keep::whole : Keep::by_level;
  const auto rows = static_cast<int64_t>(rank.samples.size()),
             columns = static_cast<int64_t>(rank.columns.size());
  const std::vector<int64_t> columns_shape = {columns}, shape = {rows, columns}, rows_shape = {rows};
  if (evidence & kToyScores) {
    writer.tensor(Phase::scores, "columns", {rank.columns.data(), DType::int64, columns_shape, {}},
                  Sharing::own, {}, keep);
    writer.tensor(Phase::scores, "energies", {rank.energies.data(), DType::float32, shape, {}}, Sharing::own,
                  rank.samples, keep);
  }
  if (evidence & kToyLosses) {
    writer.scalar(Phase::loss, "loss", rank.loss, Sharing::own);
    writer.scalar(Phase::loss, "row_weight", rank.row_weight, Sharing::own);
    writer.scalar(Phase::loss, "temperature", rank.temperature, Sharing::own);
    if (forced) {
      writer.tensor(Phase::loss, "row_losses", {rank.row_losses.data(), DType::float64, rows_shape, {}},
                    Sharing::own, {}, Keep::whole);
    }
  }
  for (const auto& [name, values] : rank.local) {
    if (evidence & kToyLocal) toy_write_tensor(writer, Phase::local_gradients, name, values, Sharing::own, forced);
  }
  for (const auto& [name, values] : rank.reduced)
    toy_write_tensor(writer, Phase::reduced_gradients, name, values, Sharing::replicated, forced);
  if (evidence & kToyNorm) writer.scalar(Phase::gradient_norm, "gradient_norm", rank.norm, Sharing::replicated);
  // Trainers that keep a dictionary of tensors record an average before what it is made of.
  for (const auto& [name, values] : rank.parameters) {
    std::vector<float> average;
    for (std::size_t i = 0; i < values.size(); ++i) average.push_back(0.9F * it.before.at(name)[i] + 0.1F * values[i]);
    if (evidence & kToyAverage)
      toy_write_tensor(writer, Phase::parameters, "buffer/average." + name, average, Sharing::replicated, forced);
  }
  for (const auto& [name, values] : rank.parameters)
    toy_write_tensor(writer, Phase::parameters, name, values, Sharing::replicated, forced);
  if (evidence & kToyBuffer) {
    toy_write_tensor(writer, Phase::parameters, "buffer/energy_mean", {static_cast<float>(rank.buffer)},
                     Sharing::replicated, forced);
  }
  if (forced && it.ranks.size() == 1) {
    for (const auto& [name, values] : rank.reduced) {
      std::vector<float> terms;
      for (const float value : values) terms.push_back(std::abs(value) + 0.5F);
      toy_write_tensor(writer, Phase::term_sums, name, terms, Sharing::replicated, true);
    }
  }
  writer.end_step();
}

/// Writes the traces of a run: free of steps 0 to 7, or forced at steps 0, 1, 2, 4. `trainer`: as they name it.
inline void toy_run(const std::string& dir, const RunConfig& config, bool forced,
                    const ToyFaults& faults = {}, const std::string& trainer = "energy", unsigned evidence = kToyUsual) {
  std::filesystem::create_directories(dir);
  const std::vector<int64_t> steps = forced ? std::vector<int64_t>{0, 1, 2, 4} : steps_up_to(8);
  std::vector<ToyStep> made;
  for (const int64_t step : steps) made.push_back(toy_step(config, step, faults));
  for (int rank = 0; rank < config.layout.world_size; ++rank) {
    TraceWriter writer(dir + "/rank-" + std::to_string(rank) + ".trace",
                       {"hash", rank, config.layout.world_size, trainer, TraceLevel::hash, "emulated"});
    for (const ToyStep& step : made)
      toy_write(writer, step, step.ranks[static_cast<std::size_t>(rank)], forced, evidence);
    writer.finish();
  }
}

}  // namespace lockstep::support
