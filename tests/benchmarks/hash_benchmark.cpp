// tensor_stats (hash, norm, extremes, non-finite) per element, beside XXH3 over the same bytes.

#include <random>
#include <vector>

#include <benchmark/benchmark.h>
#include <xxhash.h>

#include "harness/verdict/trace/record.h"

namespace lockstep {
namespace {

std::vector<float> random_floats(int64_t count) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

void per_element(benchmark::State& state) {
  state.counters["per_element"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(state.range(0)),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void stats_float32(benchmark::State& state) {
  const std::vector<float> values = random_floats(state.range(0));
  const std::vector<int64_t> shape = {state.range(0)};
  for (auto _ : state) benchmark::DoNotOptimize(tensor_stats({values.data(), DType::float32, shape, {}}));
  per_element(state);
}
BENCHMARK(stats_float32)->Arg(64)->Arg(2048)->Arg(20000)->Arg(1000000);

void stats_float32_portable(benchmark::State& state) {
  const std::vector<float> values = random_floats(state.range(0));
  const std::vector<int64_t> shape = {state.range(0)};
  for (auto _ : state) {
    benchmark::DoNotOptimize(detail::tensor_stats_portable({values.data(), DType::float32, shape, {}}));
  }
  per_element(state);
}
BENCHMARK(stats_float32_portable)->Arg(20000);

void stats_float64(benchmark::State& state) {
  const std::vector<double> values(static_cast<std::size_t>(state.range(0)), 0.5);
  const std::vector<int64_t> shape = {state.range(0)};
  for (auto _ : state) benchmark::DoNotOptimize(tensor_stats({values.data(), DType::float64, shape, {}}));
  per_element(state);
}
BENCHMARK(stats_float64)->Arg(20000);

void xxh3_float32(benchmark::State& state) {
  const std::vector<float> values = random_floats(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(XXH3_64bits(values.data(), values.size() * sizeof(float)));
  per_element(state);
}
BENCHMARK(xxh3_float32)->Arg(64)->Arg(2048)->Arg(20000)->Arg(1000000);

}  // namespace
}  // namespace lockstep
