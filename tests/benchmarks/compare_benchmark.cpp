// How long `compare` takes for two equal runs of 8 ranks with 100 tensors a step at level hash, beside what their checksums alone take.

#include <benchmark/benchmark.h>
#include <xxhash.h>

#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/base/files.h"
#include "harness/verdict/causes/name_cause.h"
#include "harness/verdict/trace/writer.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

constexpr int kRanks = 8, kParameters = 25;

/// 25 parameters with local, reduced and applied gradients; ids, a generator, the rate, the loss, one collective.
void write_rank(const std::string& path, int rank, int64_t steps) {
  TraceWriter writer(path, {"0", rank, kRanks, "foreign", TraceLevel::hash, "benchmark"});
  std::vector<float> values(64);
  const std::vector<int64_t> shape = {8, 8};
  const auto tensors = [&](Phase phase, Sharing sharing, float first) {
    for (int i = 0; i < kParameters; ++i) {
      values[0] = first + static_cast<float>(i);
      writer.tensor(phase, "encoder.layers." + std::to_string(i) + ".self_attn.weight", {values.data(), DType::float32, shape, {}}, sharing);
    }
  };
  for (int64_t step = 0; step < steps; ++step) {
    writer.begin_step(step);
    std::vector<int64_t> ids(8);
    for (std::size_t k = 0; k < ids.size(); ++k) ids[k] = (step * 64 + static_cast<int64_t>(k) * kRanks + rank) % 4096;
    writer.samples(ids);
    writer.random("process/torch", static_cast<uint64_t>(step * kRanks + rank), 64);
    writer.scalar(Phase::control, "learning_rate", 0.01, Sharing::replicated);
    writer.scalar(Phase::loss, "loss", 1.0 / static_cast<double>(step + 1 + rank), Sharing::own);
    const auto now = static_cast<float>(step);
    tensors(Phase::local_gradients, Sharing::own, now + 100.0F * static_cast<float>(rank + 1));
    writer.collective({"all_reduce", "sum", "gradients", "bucket 0", -1, DType::float32, {64}, static_cast<uint64_t>(step * kRanks + rank), static_cast<uint64_t>(step)});
    tensors(Phase::reduced_gradients, Sharing::replicated, now);
    writer.scalar(Phase::gradient_norm, "gradient_norm", 3.0, Sharing::replicated);
    tensors(Phase::applied_gradients, Sharing::replicated, now);
    tensors(Phase::parameters, Sharing::replicated, now + 0.5F);
    writer.end_step();
  }
  writer.finish();
}

void write_run(const std::string& folder, int64_t steps) {
  std::filesystem::create_directories(folder);
  for (int rank = 0; rank < kRanks; ++rank) write_rank(folder + "/rank-" + std::to_string(rank) + ".trace", rank, steps);
}

/// Of this process: other work on the machine does not count.
double processor_seconds_since(std::clock_t begin) { return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC; }

/// Processor seconds that reading all bytes of both runs and hashing them takes: no reader can be faster.
double least_seconds(const std::vector<std::string>& folders) {
  const std::clock_t begin = std::clock();
  for (const std::string& folder : folders) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const FileText file = read_file(folder + "/rank-" + std::to_string(rank) + ".trace", uint64_t{1} << 32);
      benchmark::DoNotOptimize(XXH3_64bits(file.text.data(), file.text.size()));
    }
  }
  return processor_seconds_since(begin);
}

void compare_equal_runs(benchmark::State& state) {
  const TempFolder folder;
  const int64_t steps = state.range(0);
  const std::string a = folder / "a", b = folder / "b";
  write_run(a, steps);
  write_run(b, steps);
  CompareOptions options;
  options.run_a = a;
  options.run_b = b;
  double least = 0, took = 0;
  for (auto _ : state) {
    state.PauseTiming();
    least += least_seconds({a, b});
    state.ResumeTiming();
    const std::clock_t begin = std::clock();
    if (compare_runs(options).verdict != VerdictKind::identical) state.SkipWithError("equal runs differ");
    took += processor_seconds_since(begin);
  }
  state.SetItemsProcessed(state.iterations() * steps * 2 * kRanks * 4 * kParameters);  // tensors
  state.counters["times_its_checksums"] = took / least;
}
BENCHMARK(compare_equal_runs)->Arg(100)->Arg(1000)->ArgName("steps")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep
