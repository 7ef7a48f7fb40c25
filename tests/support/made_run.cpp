#include "tests/support/made_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "harness/plan/config/canonical.h"

namespace lockstep::support {
namespace {

const std::vector<std::pair<std::string, std::size_t>>& fake_parameters() {
  static const std::vector<std::pair<std::string, std::size_t>> parameters = {{"context_encoder.weight1", 40},
                                                                              {"context_encoder.bias1", 8},
                                                                              {"action_encoder.weight1", 30},
                                                                              {"head.weight", 20},
                                                                              {"temperature", 1}};
  return parameters;
}

void write_fake_step(TraceWriter& writer, const FakeStep& it, const FakeRun& run) {
  const bool forced = run.forced;
  writer.begin_step(it.step);
  writer.samples(it.samples);
  for (const auto& [name, hash] : it.streams) writer.random(name, hash, it.samples.size() * 96);
  for (const auto& [name, value] : it.controls)
    writer.scalar(Phase::control, name, value, Sharing::replicated);
  const auto rows = static_cast<int64_t>(it.samples.size()),
             columns = static_cast<int64_t>(it.columns.size());
  const std::vector<int64_t> columns_shape = {columns}, energies_shape = {rows, columns};
  const Keep keep = forced ? Keep::whole : Keep::by_level;
  writer.tensor(Phase::scores, "columns", {it.columns.data(), DType::int64, columns_shape, {}},
                Sharing::own, {}, keep);
  std::vector<int64_t> positions;
  for (int64_t k = 0; k < rows; ++k) positions.push_back(k * it.world_size + it.rank);
  const std::vector<double> wide_energies(it.energies.begin(), it.energies.end());
  writer.tensor(Phase::scores, "energies",
                run.wide ? TensorView{wide_energies.data(), DType::float64, energies_shape, positions}
                         : TensorView{it.energies.data(), DType::float32, energies_shape, positions},
                Sharing::own, it.samples, keep);
  writer.scalar(Phase::loss, "loss", it.loss, Sharing::own);
  auto tensors = [&](Phase phase, const auto& list, Sharing sharing, Keep how) {
    for (const auto& [name, values] : list) {
      const std::vector<int64_t> shape = {static_cast<int64_t>(values.size())};
      std::vector<double> wide(values.begin(), values.end());
      if (phase != Phase::parameters && name == run.wide_scale.first) {
        for (double& value : wide) value *= run.wide_scale.second;
      }
      writer.tensor(phase, name,
                    run.wide ? TensorView{wide.data(), DType::float64, shape, {}}
                             : TensorView{values.data(), DType::float32, shape, {}},
                    sharing, {}, how);
    }
  };
  tensors(Phase::local_gradients, it.local_gradients, Sharing::own, Keep::by_level);
  for (const CollectiveRecord& collective : it.collectives) writer.collective(collective);
  tensors(Phase::reduced_gradients, it.reduced_gradients, Sharing::replicated, keep);
  writer.scalar(Phase::gradient_norm, "gradient_norm", it.gradient_norm, Sharing::replicated);
  tensors(Phase::parameters, it.parameters, Sharing::replicated, Keep::by_level);
  for (const auto& [name, value] : it.evaluations) writer.scalar(Phase::evaluation, name, value, Sharing::own);
  tensors(Phase::optimizer_state, it.optimizer_state, Sharing::replicated, keep);
  if (it.rank == 0) tensors(Phase::term_sums, it.term_sums, Sharing::replicated, Keep::whole);
  writer.end_step();
}

}  // namespace

void write_ranks(const std::string& dir, TraceHeader header, const WriteSteps& steps, bool finish) {
  std::filesystem::create_directories(dir);
  for (header.rank = 0; header.rank < header.world_size; ++header.rank) {
    TraceWriter writer(dir + "/rank-" + std::to_string(header.rank) + ".trace", header);
    steps(writer, header.rank);
    if (finish) writer.finish();
  }
}

double keyed(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t z = a * 0x9e3779b97f4a7c15ULL + b * 0xd1b54a32d192ed03ULL + c * 0x94d049bb133111ebULL +
               0x2545f4914f6cdd1dULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-52 - 1;
}

std::vector<int64_t> steps_up_to(int64_t count) {
  std::vector<int64_t> steps(static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) steps[static_cast<std::size_t>(i)] = i;
  return steps;
}

int64_t fake_sample(int64_t step, int64_t row) { return (step * 24 + row) * 7 % 1404; }

FakeStep fake_step(const FakeRun& run, int64_t step, int rank) {
  FakeStep it;
  it.step = step;
  it.rank = rank;
  it.world_size = run.world_size;
  const auto s = static_cast<uint64_t>(step);
  // Rounding noise depends on the run, so that runs of different layouts differ as real ones do.
  auto noisy = [&](double value, uint64_t key) {
    return static_cast<float>(value * (1 + run.noise * keyed(run.noise_seed + 17, key, s)));
  };
  uint64_t context = 0, dropout = 0;
  for (int64_t row = rank; row < run.global_batch; row += run.world_size) {
    it.samples.push_back(fake_sample(step, row));
    context += static_cast<uint64_t>(it.samples.back() + 1) * 0x9e3779b97f4a7c15ULL * (s + 1);
    dropout += static_cast<uint64_t>(it.samples.back() + 1) * 0xc4ceb9fe1a85ec53ULL * (s + 1);
  }
  it.streams = {{"context noise", context}, {"dropout in head", dropout}};
  it.controls = {{"lr", 1e-3}, {"step", static_cast<double>(step)}};
  it.columns = it.samples;
  if (!run.local_negatives) {
    it.columns.clear();
    for (int64_t row = 0; row < run.global_batch; ++row) it.columns.push_back(fake_sample(step, row));
  }
  for (int64_t row : it.samples) {
    for (int64_t column : it.columns) {
      const auto r = static_cast<uint64_t>(row), c = static_cast<uint64_t>(column);
      it.energies.push_back(noisy(2 + keyed(r, c, s), r * 5000 + c));
    }
  }
  it.loss = noisy(3 + keyed(s, 1), 3) * (1 + 0.125 * (rank - (run.world_size - 1) / 2.0));
  double squares = 0;
  for (std::size_t p = 0; p < fake_parameters().size(); ++p) {
    const auto& [name, size] = fake_parameters()[p];
    std::vector<float> local(size), reduced(size), parameter(size), terms(size);
    for (std::size_t i = 0; i < size; ++i) {
      const uint64_t key = p * 1000 + i;
      const double gradient = keyed(key, s, 5);
      local[i] = noisy(gradient + keyed(key, s, 100 + static_cast<uint64_t>(rank)), key);
      reduced[i] = noisy(gradient, key + 7);
      parameter[i] = noisy(keyed(key, s, 9), key + 11);
      terms[i] = static_cast<float>(std::abs(gradient) * 4);
      squares += static_cast<double>(reduced[i]) * reduced[i];
    }
    it.local_gradients.emplace_back(name, local);
    it.reduced_gradients.emplace_back(name, reduced);
    it.parameters.emplace_back(name, parameter);
    if (run.term_sums) it.term_sums.emplace_back(name, terms);
  }
  it.gradient_norm = std::sqrt(squares);
  for (uint64_t i = 0; i < 3; ++i) {
    it.collectives.push_back({"all_reduce",
                              "mean",
                              "gradients",
                              "bucket " + std::to_string(i),
                              -1,
                              DType::float32,
                              {33},
                              s * 31 + i * 7 + static_cast<uint64_t>(rank),
                              s * 37 + i});
  }
  return it;
}

void write_fake_run(const std::string& dir, const FakeRun& run) {
  write_ranks(
      dir, {run.config_hash, 0, run.world_size, run.trainer, run.level, "emulated"},
      [&](TraceWriter& writer, int rank) {
        for (int64_t step : run.steps) {
          FakeStep it = fake_step(run, step, rank);
          if (run.fault) run.fault(it);
          if (it.write) write_fake_step(writer, it, run);
        }
      },
      run.finish);
}

void scale(std::vector<std::pair<std::string, std::vector<float>>>& list, const std::string& name, float factor) {
  for (auto& [tensor, values] : list) {
    for (float& value : values) value *= tensor.starts_with(name) ? factor : 1;
  }
}

std::vector<float>& tensor_of(std::vector<std::pair<std::string, std::vector<float>>>& list,
                                     const std::string& name) {
  for (auto& [each, values] : list) {
    if (each == name) return values;
  }
  return list.front().second;
}

const std::vector<std::pair<std::string, std::size_t>>& toy_parameters() {
  static const std::vector<std::pair<std::string, std::size_t>> parameters = {
      {"context_encoder.weight", 12}, {"context_encoder.bias", 4}, {"action_encoder.weight", 12},
      {"energy_head.query", 6},       {"energy_head.key", 6},      {"temperature.log_tau", 1}};
  return parameters;
}

float toy_value(const std::string& name, std::size_t i, uint64_t a, uint64_t b) {
  return static_cast<float>(keyed(std::hash<std::string>{}(name) + i, a, b));
}

int64_t toy_sample(int64_t step, int64_t row, int rows) {
  const int64_t epoch = step / 4, place = (step % 4) * rows + row;
  return (place * 7 + epoch * 5 + 3) % (4 * rows);
}

float toy_energy(int64_t row, int64_t column, int64_t step) {
  return static_cast<float>(1 + 0.4 * keyed(static_cast<uint64_t>(row), static_cast<uint64_t>(column),
                                            static_cast<uint64_t>(step)));
}

std::vector<std::size_t> toy_targets(const ToyRank& rank) {
  std::vector<std::size_t> targets;
  for (const int64_t id : rank.samples) {
    targets.push_back(static_cast<std::size_t>(std::find(rank.columns.begin(), rank.columns.end(), id) -
                                               rank.columns.begin()));
  }
  return targets;
}

std::vector<double> toy_row_losses(const ToyRank& rank, double tau,
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

void toy_loss(ToyRank& rank) {
  rank.loss = 0;
  for (const double loss : rank.row_losses) rank.loss += rank.row_weight * loss;
}

namespace {

void toy_forward(ToyStep& it) {
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

void toy_local(ToyStep& it) {
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

void toy_reduce(ToyStep& it) {
  const auto world = static_cast<float>(it.ranks.size());
  for (const auto& [name, size] : toy_parameters()) {
    std::vector<float> sum(size, 0);
    for (const ToyRank& rank : it.ranks) {
      for (std::size_t i = 0; i < size; ++i) sum[i] += rank.local.at(name)[i] / world;
    }
    for (ToyRank& rank : it.ranks) rank.reduced[name] = sum;
  }
}

void toy_write_tensor(TraceWriter& writer, Phase phase, const std::string& name,
                             const std::vector<float>& values, Sharing sharing, bool whole) {
  const std::vector<int64_t> shape = {static_cast<int64_t>(values.size())};
  writer.tensor(phase, name, {values.data(), DType::float32, shape, {}}, sharing, {},
                whole ? Keep::whole : Keep::by_level);
}

void toy_write(TraceWriter& writer, const ToyStep& it, const ToyRank& rank, bool forced, unsigned evidence) {
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

}  // namespace

ToyUpdate toy_update_of(const ToyStep& it, const ToyRank& rank) {
  const RunConfig& config = *it.config;
  ToyUpdate update;
  update.rate = rank.rate;
  if (config.clip_norm > 0) update.factor = std::min(1.0, config.clip_norm / (rank.norm + 1e-6));
  update.decay = config.weight_decay;
  update.coupled = config.optimizer == OptimizerKind::adam;
  update.count = it.updates() + 1;
  return update;
}

void toy_apply(ToyStep& it, ToyRank& rank, const ToyUpdate& how) {
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

ToyStep toy_step(const RunConfig& config, int64_t step, const ToyFaults& faults) {
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

void toy_run(const std::string& dir, const RunConfig& config, bool forced, const ToyFaults& faults,
             const std::string& trainer, unsigned evidence) {
  std::vector<ToyStep> made;
  for (const int64_t step : forced ? std::vector<int64_t>{0, 1, 2, 4} : steps_up_to(8))
    made.push_back(toy_step(config, step, faults));
  const TraceHeader header{"hash", 0, config.layout.world_size, trainer, TraceLevel::hash, "emulated"};
  write_ranks(dir, header, [&](TraceWriter& writer, int rank) {
    for (const ToyStep& it : made) toy_write(writer, it, it.ranks[static_cast<std::size_t>(rank)], forced, evidence);
  });
}

}  // namespace lockstep::support
