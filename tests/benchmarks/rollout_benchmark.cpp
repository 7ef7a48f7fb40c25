// The simulator of flow_rl with its policy: simulated steps a second, wanted at 10,000.

#include <benchmark/benchmark.h>

#include "scenarios/flow_rl/rollout.h"
#include "scenarios/flow_rl/tasks/tasks.h"

namespace lockstep {
namespace {

std::vector<std::vector<double>> weights(const FlowConfig& flow) {
  const auto w = static_cast<std::size_t>(flow.hidden), out = static_cast<std::size_t>(flow.chunk * kActionNumbers),
             in = static_cast<std::size_t>(kObserved) + out + FlowConfig::kTransitions;
  std::vector<std::vector<double>> values;
  for (const std::size_t size : {w * in, w, w * w, w, out * w, out}) {
    std::vector<double> tensor(size);
    for (std::size_t i = 0; i < size; ++i) tensor[i] = 0.1 * (2 * unit_interval(keyed(size, i)) - 1);
    values.push_back(tensor);
  }
  return values;
}

/// Argument: place of the task in the suite.
void Rollout(benchmark::State& state) {
  const FlowConfig flow;
  const PlainPolicy policy(flow, weights(flow));
  const auto task = static_cast<int>(state.range(0));
  state.SetLabel(std::string(manipulation::manipulation_tasks()[static_cast<std::size_t>(task)].name));
  uint64_t key = 0;
  int64_t steps = 0;
  for (auto _ : state) {
    ++key;
    steps += roll_out(flow, policy, ObservationScale(), {task, key, key}).steps;
  }
  state.counters["simulated_steps_per_s"] = benchmark::Counter(static_cast<double>(steps), benchmark::Counter::kIsRate);
}
BENCHMARK(Rollout)->DenseRange(0, 11);

}  // namespace
}  // namespace lockstep
