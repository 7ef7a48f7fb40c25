// From text to plan: what `lockstep plan` costs before anything runs.

#include <benchmark/benchmark.h>

#include <string>

#include "harness/verdict/config/canonical.h"
#include "harness/verdict/plan/plan.h"
#include "harness/verdict/plan/read_matrix.h"
#include "harness/verdict/plan/schema.h"

namespace lockstep {
namespace {

// 2 x 2 x 5 x 5 x 10 = 1,000 cells.
std::string thousand_cells(const std::string& seeds) {
  return "# How long does a plan take?\nname: big\nquestion: mechanism\nseeds: " + seeds +
         "\nreference: {layout: 1x24}\naxes:\n"
         "  layout: [8x3, 3x8]\n"
         "  negatives: [local, global]\n"
         "  clip_norm: [0, 0.1, 0.2, 0.5, 1]\n"
         "  dropout: [0, 0.05, 0.1, 0.2, 0.3]\n"
         "  lr: [0.0001, 0.0002, 0.0003, 0.0004, 0.0005, 0.0006, 0.0007, 0.0008, 0.0009, 0.001]\n"
         "expect: [{when: {negatives: local}, verdict: divergent}, {when: {}, verdict: within_envelope}]\n";
}

void plan_text_to_runs(benchmark::State& state, const std::string& seeds) {
  const std::string text = thousand_cells(seeds);
  std::size_t runs = 0;
  for (auto _ : state) {
    const Plan plan = make_plan(parse_matrix(text, "big.yaml", {}), "", {});
    runs = plan.runs.size();
    benchmark::DoNotOptimize(runs);
  }
  state.counters["runs"] = static_cast<double>(runs);
}

void BM_PlanThousandCells(benchmark::State& state) { plan_text_to_runs(state, "0"); }
BENCHMARK(BM_PlanThousandCells)->Unit(benchmark::kMillisecond);

void BM_PlanThousandCellsTenSeeds(benchmark::State& state) { plan_text_to_runs(state, "0..9"); }
BENCHMARK(BM_PlanThousandCellsTenSeeds)->Unit(benchmark::kMillisecond);

// As the comparison of layouts: 5 x 3 cells, each with its own reference, and 4 rules of the rate.
void BM_PlanComparisonOfLayouts(benchmark::State& state) {
  const std::string text =
      "# Which layouts train as 1x24?\nname: layouts\nquestion: outcome\nsteps: 400\nseeds: 0..9\n"
      "primary: {metric: accuracy_24, margin: 0.03, alpha: 0.05}\n"
      "reference: {same_as: cell, layout: 1x24}\naxes:\n"
      "  layout: [2x12, 3x8, 4x6, 8x3, 24x1]\n"
      "  negatives: [global, local, layer]\n"
      "include:\n"
      "  - {layout: 8x3, negatives: global, lr_rule: linear}\n"
      "  - {layout: 8x3, negatives: global, lr_rule: sqrt}\n"
      "  - {layout: 8x3, negatives: global, lr_scale: 0.125}\n"
      "power_controls: [{lr_scale: 0.125}]\nallow_no_negatives: true\n";
  std::size_t runs = 0;
  for (auto _ : state) {
    const Plan plan = make_plan(parse_matrix(text, "layouts.yaml", {}), "", {});
    runs = plan.runs.size();
    benchmark::DoNotOptimize(runs);
  }
  state.counters["runs"] = static_cast<double>(runs);
}
BENCHMARK(BM_PlanComparisonOfLayouts)->Unit(benchmark::kMillisecond);

void BM_ConfigHash(benchmark::State& state) {
  const RunConfig config;
  for (auto _ : state) benchmark::DoNotOptimize(config_hash(config));
}
BENCHMARK(BM_ConfigHash)->Unit(benchmark::kMicrosecond);

void BM_ConfigSchema(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(config_schema());
}
BENCHMARK(BM_ConfigSchema)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep
