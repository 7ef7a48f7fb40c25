// What deciding which run starts next costs, beside runs that take seconds.

#include <benchmark/benchmark.h>

#include "tests/support/drawn_jobs.h"

namespace lockstep {
namespace {

/// Order and all starts and ends of a matrix of so many runs.
void BM_QueueOfRuns(benchmark::State& state) {
  const std::vector<Job> jobs = support::drawn_jobs(static_cast<std::size_t>(state.range(0)), 1, 3);
  const auto slots = static_cast<int>(state.range(1));
  double makespan = 0;
  for (auto _ : state) {
    makespan = support::run_through(JobQueue(jobs, slots), [](const Job& job) { return job.estimate_s; });
    benchmark::DoNotOptimize(makespan);
  }
  state.counters["makespan_to_bound"] = makespan / makespan_bound(support::shapes_of(jobs, slots), slots);
}
BENCHMARK(BM_QueueOfRuns)->ArgsProduct({{200, 1000, 10000}, {2, 8, 16}})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep
