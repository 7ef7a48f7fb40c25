// Steps of the whole trainer: R0 (one process), R1 (emulated ranks), R2 (real ranks on Gloo), and what the trace costs.
//
// Every run goes through rank_main in forked processes, as the tool itself runs it; what is measured is the training loop's
// own clock (evaluation left out), the slowest rank's. Compare lines of one run of this program: the machine's speed drifts.

#include <benchmark/benchmark.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/launch/beat.h"
#include "harness/plan/run_config.h"
#include "harness/rank/rank_main.h"
#include "harness/trace/rank_result.h"

namespace lockstep {
namespace {

RunConfig bench_config(Layout layout, Negatives negatives, RankKind ranks, TraceLevel trace, int64_t steps) {
  RunConfig config;
  config.data.source = DataSource::synthetic;
  config.layout = layout;
  config.negatives = negatives;
  config.ranks = ranks;
  config.trace = trace;
  config.steps = steps;
  config.eval_every = 0;
  return config;
}

/// Trains in forked processes; seconds of the slowest rank's training loop.
double train_seconds(const RunConfig& config) {
  std::string dir = (std::filesystem::temp_directory_path() / "lockstep-bench-XXXXXX").string();
  if (mkdtemp(dir.data()) == nullptr) {
    throw std::runtime_error("no temporary folder");
  }
  write_file_atomically(dir + "/run.json",
                        nlohmann::json{{"config", nlohmann::json::parse(canonical_json(config))}}.dump());
  const int world = config.layout.world_size;
  BeatFile::create(dir + "/beat", world);
  const bool real = config.ranks == RankKind::real && world > 1;
  std::vector<pid_t> children;
  for (int rank = 0; rank < (real ? world : 1); ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      _exit(rank_main({dir, real ? rank : -1, 0}));
    }
    children.push_back(child);
  }
  bool fine = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    fine = fine && status == 0;
  }
  double seconds = 0;
  for (int rank = 0; fine && rank < world; ++rank) {
    seconds = std::max(seconds, read_rank_result(dir + "/rank-" + std::to_string(rank) + ".result.json").train_seconds);
  }
  std::filesystem::remove_all(dir);
  if (!fine) {
    throw std::runtime_error("a rank failed");
  }
  return seconds;
}

void run(benchmark::State& state, Layout layout, Negatives negatives, RankKind ranks, TraceLevel trace, int64_t steps) {
  const RunConfig config = bench_config(layout, negatives, ranks, trace, steps);
  for ([[maybe_unused]] auto _ : state) {
    state.SetIterationTime(train_seconds(config));
  }
  state.counters["steps/s"] =
      benchmark::Counter(static_cast<double>(steps), benchmark::Counter::kIsIterationInvariantRate);
}

void register_all() {
  const auto add = [](const std::string& name, Layout layout, Negatives negatives, RankKind ranks, TraceLevel trace,
                      int64_t steps) {
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      run(state, layout, negatives, ranks, trace, steps);
    })->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(1);
  };
  const Layout one{1, 24};
  const Layout eight{8, 3};
  // Traced and untraced take turns, so that a drift of the machine hits both.
  for (const char* turn : {"1", "2", "3", "4", "5"}) {
    add(std::string("R0/1x24/trace_off/") + turn, one, Negatives::global, RankKind::emulated, TraceLevel::off, 400);
    add(std::string("R0/1x24/trace_hash/") + turn, one, Negatives::global, RankKind::emulated, TraceLevel::hash, 400);
    add(std::string("R1/8x3/local/trace_off/") + turn, eight, Negatives::local, RankKind::emulated, TraceLevel::off, 150);
    add(std::string("R1/8x3/local/trace_hash/") + turn, eight, Negatives::local, RankKind::emulated, TraceLevel::hash, 150);
    add(std::string("R1/8x3/global/trace_off/") + turn, eight, Negatives::global, RankKind::emulated, TraceLevel::off, 150);
    add(std::string("R1/8x3/global/trace_hash/") + turn, eight, Negatives::global, RankKind::emulated, TraceLevel::hash, 150);
  }
  for (const char* turn : {"1", "2", "3"}) {
    add(std::string("R2/8x3/local/trace_hash/") + turn, eight, Negatives::local, RankKind::real, TraceLevel::hash, 60);
    add(std::string("R2/8x3/global/trace_hash/") + turn, eight, Negatives::global, RankKind::real, TraceLevel::hash, 60);
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  // Ranks take one thread each; set before any of them is forked.
  setenv("OMP_NUM_THREADS", "1", 1);
  setenv("MKL_NUM_THREADS", "1", 1);
  benchmark::Initialize(&argc, argv);
  lockstep::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
