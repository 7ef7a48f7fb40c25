// Steps of the whole trainer: R0 (one process), R1 (emulated ranks), R2 (real ranks on Gloo), and what the
// trace costs.
//
// Every run goes through run_job in forked processes, as the tool itself runs it; what is measured is the
// training loop's own clock (evaluation left out), the slowest rank's. Each line is a ratio measured in
// turns: `speedup` is the steps/s of the first over the second named, `cost` its inverse. Absolute times
// drift with the machine.

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

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/jobs/train_job.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/run_config.h"
#include "harness/run/watch.h"
#include "scenarios/energy/spec.h"

namespace lockstep {
namespace {

RunConfig bench_config(Layout layout, Negatives negatives, Backend ranks, TraceLevel trace, int64_t steps) {
  RunConfig config;
  config.data.source = DataSource::synthetic;
  config.layout = layout;
  energy(config).negatives = negatives;
  config.backend = ranks;
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
  nlohmann::json run{{"config", nlohmann::json::parse(canonical_json(config))}};
  seal(run);
  write_file_atomically(dir + "/run.json", run.dump());
  const int world = config.layout.world_size;
  HeartbeatFile::create(dir + "/heartbeat", world);
  const bool real = config.backend == Backend::gloo && world > 1;
  std::vector<pid_t> children;
  for (int rank = 0; rank < (real ? world : 1); ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      RankTask task;
      task.run_dir = dir;
      if (real) task.rank = rank;
      _exit(run_job(task));
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
    seconds = std::max(
        seconds, read_rank_result(dir + "/rank-" + std::to_string(rank) + ".result.json").train_seconds);
  }
  std::filesystem::remove_all(dir);
  if (!fine) {
    throw std::runtime_error("a rank failed");
  }
  return seconds;
}

double steps_per_second(const RunConfig& config) {
  return static_cast<double>(config.steps) / train_seconds(config);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Steps/s of two configs that take turns, so that a drift of the machine hits both, and the median of their
/// ratios.
void compare(benchmark::State& state, const RunConfig& config, const RunConfig& base, int turns) {
  std::vector<double> ratios;
  std::vector<double> speeds;
  std::vector<double> base_speeds;
  for ([[maybe_unused]] auto _ : state) {
    for (int turn = 0; turn < turns; ++turn) {
      base_speeds.push_back(steps_per_second(base));
      speeds.push_back(steps_per_second(config));
      ratios.push_back(speeds.back() / base_speeds.back());
    }
    state.SetIterationTime(static_cast<double>(config.steps) / median(speeds));
  }
  state.counters["steps/s"] = median(speeds);
  state.counters["base_steps/s"] = median(base_speeds);
  state.counters["speedup"] = median(ratios);
  state.counters["cost"] = 1.0 / median(ratios);
}

void add(const std::string& name, const RunConfig& config, const RunConfig& base, int turns) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) { compare(state, config, base, turns); })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->Iterations(1);
}

/// A step in exact arithmetic against a native one of the same layout: `cost` is how many times longer it takes.
void register_exact() {
  for (const int width : {32, 128, 512}) {
    for (const Layout& layout : {Layout{1, 24}, Layout{8, 3}}) {
      const bool large = width > 128;
      RunConfig native =
          bench_config(layout, Negatives::global, Backend::emulated, TraceLevel::hash, large ? 10 : 100);
      energy(native).model.width = width;
      energy(native).model.hidden = 2 * width;
      if (large) native.data.series = 12;  // what is evaluated behind the steps takes longer than they do
      RunConfig exact = native;
      exact.arithmetic = Arithmetic::exact;
      exact.steps = large ? 4 : 40;
      const char* const what = layout.world_size == 1 ? "1x24" : "8x3";
      add(std::string("ExactOverNative/width:") + std::to_string(width) + "/" + what, exact, native, large ? 3 : 5);
    }
  }
}

void register_all() {
  register_exact();
  const Layout one{1, 24};
  const Layout eight{8, 3};
  const auto emulated = [&](Layout layout, Negatives negatives, TraceLevel trace, int64_t steps) {
    return bench_config(layout, negatives, Backend::emulated, trace, steps);
  };
  add("TraceHashOverOff/R0/1x24", emulated(one, Negatives::global, TraceLevel::hash, 300),
      emulated(one, Negatives::global, TraceLevel::off, 300), 15);
  for (const auto& [name, negatives] :
       {std::pair{"local", Negatives::local}, std::pair{"global", Negatives::global}}) {
    add(std::string("TraceHashOverOff/R1/8x3/") + name, emulated(eight, negatives, TraceLevel::hash, 100),
        emulated(eight, negatives, TraceLevel::off, 100), 11);
  }
  for (const auto& [name, negatives] :
       {std::pair{"local", Negatives::local}, std::pair{"global", Negatives::global}}) {
    add(std::string("EmulatedOverReal/8x3/") + name, emulated(eight, negatives, TraceLevel::hash, 120),
        bench_config(eight, negatives, Backend::gloo, TraceLevel::hash, 60), 3);
  }
  add("OneProcessOverEmulated/1x24/8x3/global", emulated(one, Negatives::global, TraceLevel::hash, 300),
      emulated(eight, Negatives::global, TraceLevel::hash, 100), 3);
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
