#pragma once
// Run folders written by TraceWriter itself: a toy distributed run with everything the judge looks at, and
// hooks for faults.

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/verdict/trace/writer.h"

namespace lockstep::support {

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

/// A number in [-1, 1) from a key.
inline double keyed(uint64_t a, uint64_t b, uint64_t c = 0) {
  uint64_t z = a * 0x9e3779b97f4a7c15ULL + b * 0xd1b54a32d192ed03ULL + c * 0x94d049bb133111ebULL +
               0x2545f4914f6cdd1dULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-52 - 1;
}

inline std::vector<int64_t> steps_up_to(int64_t count) {
  std::vector<int64_t> steps(static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) steps[static_cast<std::size_t>(i)] = i;
  return steps;
}

inline const std::vector<std::pair<std::string, std::size_t>>& fake_parameters() {
  static const std::vector<std::pair<std::string, std::size_t>> parameters = {{"context_encoder.weight1", 40},
                                                                              {"context_encoder.bias1", 8},
                                                                              {"action_encoder.weight1", 30},
                                                                              {"head.weight", 20},
                                                                              {"temperature", 1}};
  return parameters;
}

/// The batch's sample id in row `row` of the global batch.
inline int64_t fake_sample(int64_t step, int64_t row) { return (step * 24 + row) * 7 % 1404; }

inline FakeStep fake_step(const FakeRun& run, int64_t step, int rank) {
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

inline void write_fake_step(TraceWriter& writer, const FakeStep& it, const FakeRun& run) {
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

/// Writes rank-<r>.trace of every rank into `dir`, which is made.
inline void write_fake_run(const std::string& dir, const FakeRun& run) {
  std::filesystem::create_directories(dir);
  for (int rank = 0; rank < run.world_size; ++rank) {
    TraceWriter writer(dir + "/rank-" + std::to_string(rank) + ".trace",
                       {run.config_hash, rank, run.world_size, run.trainer, run.level, "emulated"});
    for (int64_t step : run.steps) {
      FakeStep it = fake_step(run, step, rank);
      if (run.fault) run.fault(it);
      if (it.write) write_fake_step(writer, it, run);
    }
    if (run.finish) writer.finish();
  }
}

/// The tensor of that name in a list.
inline std::vector<float>& tensor_of(std::vector<std::pair<std::string, std::vector<float>>>& list,
                                     const std::string& name) {
  for (auto& [each, values] : list) {
    if (each == name) return values;
  }
  return list.front().second;
}

}  // namespace lockstep::support
