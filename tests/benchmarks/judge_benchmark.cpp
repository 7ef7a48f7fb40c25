#include <benchmark/benchmark.h>
#include <xxhash.h>

#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/answer/questions/matrix_judge.h"
#include "harness/answer/results/words.h"
#include "harness/answer/stats/estimates.h"
#include "harness/base/files.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/record.h"
#include "harness/judge/trace/writer.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan.h"
#include "harness/plan/matrix/read_matrix.h"
#include "reports/format.h"
#include "tests/support/drawn_jobs.h"
#include "tests/support/results_fixture.h"
#include "tests/support/synthetic_matrix.h"
#include "tests/support/temp_folder.h"
#include "tests/support/trace_step.h"

// How long the judge takes for a large matrix, and its arithmetic alone.

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

// How long `compare` takes for two equal runs of 8 ranks with 100 tensors a step at level hash, beside what their checksums alone take.

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

// From text to plan: what `lockstep plan` costs before anything runs.

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

// What a report costs: 24 cells with two curves of 300 points each and ten forced steps must take well under
// 0.3 s and 600 KB.

constexpr int kCells = 24, kPoints = 300, kForcedSteps = 10;

template <typename Report>
void measure(benchmark::State& state, Report report) {
  const Results results = large_results(kCells, kPoints, kForcedSteps);
  std::size_t bytes = 0;
  for (auto _ : state) {
    const std::string text = report(results);
    bytes = text.size();
    benchmark::DoNotOptimize(bytes);
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}

void BM_HtmlReport(benchmark::State& state) { measure(state, html_report); }

void BM_JunitReport(benchmark::State& state) { measure(state, junit_report); }

void BM_MarkdownSummary(benchmark::State& state) { measure(state, markdown_summary); }

void BM_TerminalTable(benchmark::State& state) {
  measure(state, [](const Results& results) { return terminal_table(results, true, 120); });
}

BENCHMARK(BM_HtmlReport)->Unit(benchmark::kMillisecond);

BENCHMARK(BM_JunitReport)->Unit(benchmark::kMillisecond);

BENCHMARK(BM_MarkdownSummary)->Unit(benchmark::kMillisecond);

BENCHMARK(BM_TerminalTable)->Unit(benchmark::kMillisecond);

// Steps a second of one rank's writer in the shape of the energy trainer at 8 ranks, hashing included; and of
// the reader.

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

// What deciding which run starts next costs, beside runs that take seconds.

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
