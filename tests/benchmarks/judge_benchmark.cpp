// How long the judge takes for a large matrix, and its arithmetic alone.

#include <benchmark/benchmark.h>

#include "harness/verdict/questions/matrix_judge.h"
#include "harness/verdict/results/document.h"
#include "harness/verdict/stats/power.h"
#include "tests/support/synthetic_matrix.h"

namespace {

using namespace lockstep;

/// 100 cells of 8 ranks, 10 seeds, 600 steps: every rank result read (from memory), every curve averaged and
/// thinned.
support::SyntheticMatrix hundred_cells() {
  support::SyntheticMatrix matrix(10, 600);
  for (int i = 0; i < 100; ++i) matrix.add_cell({"cell " + std::to_string(i), -0.001 * i, 0.02});
  return matrix;
}

void judge_100_cells(benchmark::State& state) {
  support::SyntheticMatrix matrix = hundred_cells();
  matrix.options.jobs = static_cast<int>(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(matrix.judge());
  state.SetItemsProcessed(state.iterations() * 100);
}
BENCHMARK(judge_100_cells)->Arg(1)->Arg(2)->ArgName("threads")->Unit(benchmark::kMillisecond)->UseRealTime();

void write_results_of_100_cells(benchmark::State& state) {
  const Results results = hundred_cells().judge();
  std::size_t bytes = 0;
  for (auto _ : state) bytes += results_to_json(results).size();
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}
BENCHMARK(write_results_of_100_cells)->Unit(benchmark::kMillisecond);

void read_results_of_100_cells(benchmark::State& state) {
  const std::string text = results_to_json(hundred_cells().judge());
  for (auto _ : state) benchmark::DoNotOptimize(results_from_json(text, "results.json"));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}
BENCHMARK(read_results_of_100_cells)->Unit(benchmark::kMillisecond);

void exact_power(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(equivalence_power({static_cast<int>(state.range(0)), 0.036, 0.03, 0.05, 0}));
}
BENCHMARK(exact_power)->Arg(3)->Arg(10)->Arg(1000)->ArgName("seeds")->Unit(benchmark::kMicrosecond);

void seeds_that_decide(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(seeds_needed({2, 0.2, 0.03, 0.05, 0}));
}
BENCHMARK(seeds_that_decide)->Unit(benchmark::kMicrosecond);

}  // namespace
