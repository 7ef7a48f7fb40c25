// Steps a second of one rank's writer in the shape of the energy trainer at 8 ranks, hashing included; and of
// the reader.

#include <benchmark/benchmark.h>

#include "harness/verdict/trace/reader.h"
#include "tests/support/temp_folder.h"
#include "tests/support/trace_step.h"

namespace lockstep {
namespace {

TraceHeader header_of(int rank, TraceLevel level) { return {"0", rank, 8, "energy", level, "emulated"}; }

/// Argument 0: the trace level; argument 1: the rank.
void write_step(benchmark::State& state) {
  const TempFolder folder;
  support::StepWriter writer(
      folder / "t", header_of(static_cast<int>(state.range(1)), static_cast<TraceLevel>(state.range(0))));
  int64_t step = 0;
  for (auto _ : state) writer.write(step++);
  state.counters["steps"] = benchmark::Counter(static_cast<double>(step), benchmark::Counter::kIsRate);
}
BENCHMARK(write_step)->ArgsProduct({{0, 1, 2, 3}, {0, 1}})->ArgNames({"level", "rank"});

void read_steps(benchmark::State& state) {
  const TempFolder folder;
  {
    support::StepWriter writer(folder / "t", header_of(0, TraceLevel::hash));
    for (int64_t step = 0; step < 600; ++step) writer.write(step);
    writer.finish();
  }
  int64_t steps = 0;
  for (auto _ : state) {
    TraceReader reader(folder / "t");
    while (reader.next()) ++steps;
  }
  state.counters["steps"] = benchmark::Counter(static_cast<double>(steps), benchmark::Counter::kIsRate);
}
BENCHMARK(read_steps);

}  // namespace
}  // namespace lockstep
