// What a report costs: 24 cells with two curves of 300 points each and ten forced steps must take well under
// 0.3 s and 600 KB.

#include <benchmark/benchmark.h>

#include "reports/html.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/terminal.h"
#include "tests/support/results_fixture.h"

namespace lockstep {
namespace {

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

}  // namespace
}  // namespace lockstep
