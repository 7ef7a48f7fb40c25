#include <benchmark/benchmark.h>

#include <string>

#include "harness/lib/data/sampler.h"
#include "harness/lib/data/series.h"
#include "scenarios/energy/config.h"
#include "scenarios/energy/dataset.h"

namespace lockstep {
namespace {

DataConfig generated() {
  DataConfig config;
  config.source = DataSource::synthetic;
  return config;
}

/// A file of the size and form of BasicMotions: 40 series, 6 dimensions, 100 steps, six decimals.
std::string ts_text() {
  const SeriesSet set = synthetic_series(generated(), 0);
  std::string text =
      "@dimensions 6\n@seriesLength 100\n@classLabel true motion0 motion1 motion2 motion3\n@data\n";
  for (std::size_t i = 0; i < set.series.size(); ++i) {
    for (std::size_t channel = 0; channel < 6; ++channel) {
      for (std::size_t t = 0; t < 100; ++t) {
        text += (t == 0 ? "" : ",") + std::to_string(set.series[i][t * 6 + channel]);
      }
      text += ':';
    }
    text += set.labels[i] + "\n";
  }
  return text;
}

void parse_basic_motions(benchmark::State& state) {
  const std::string text = ts_text();
  for (auto _ : state) benchmark::DoNotOptimize(parse_ts(text, "benchmark.ts"));
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
}
BENCHMARK(parse_basic_motions)->Unit(benchmark::kMillisecond);

void generate_series(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(synthetic_series(generated(), 0));
}
BENCHMARK(generate_series)->Unit(benchmark::kMillisecond);

/// Generating included: what a run on generated data pays before its first step.
void load_generated_dataset(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(load_dataset(PairConfig(generated(), {})));
}
BENCHMARK(load_generated_dataset)->Unit(benchmark::kMillisecond);

void randperm(benchmark::State& state) {
  uint64_t seed = 0;
  for (auto _ : state) benchmark::DoNotOptimize(torch_randperm(state.range(0), seed++));
  state.SetItemsProcessed(state.range(0) * state.iterations());
}
BENCHMARK(randperm)->Arg(1404)->Arg(100000);

/// One rank's batches in order, permutations of new epochs included.
void sampler_batch(benchmark::State& state) {
  DistributedSampler sampler({.samples = 1404, .world_size = 8, .rank = 3, .rows_per_rank = 3});
  int64_t step = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sampler.batch(step++));
}
BENCHMARK(sampler_batch);

}  // namespace
}  // namespace lockstep
