#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "harness/base/machine.h"
#include "harness/base/numbers.h"
#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/storage.h"

// A verified durable save beside a plain write and fsync of the same bytes, in turns on one disk, so that
// both see the same weather. What is compared: medians. The goal is a ratio of at most 1.25 at 256 MiB.

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

/// On the disk of the build, not in a /tmp that may be memory; LOCKSTEP_BENCHMARK_FOLDER names another.
std::string new_folder() {
  const char* const wanted = std::getenv("LOCKSTEP_BENCHMARK_FOLDER");
  std::string name = std::string(wanted == nullptr ? "." : wanted) + "/checkpoint-benchmark-XXXXXX";
  return ::mkdtemp(name.data()) == nullptr ? "" : name;
}

State state_of(int64_t bytes) {
  State state;
  constexpr int64_t kTensors = 16;
  for (int64_t at = 0; at < kTensors; ++at) {
    Tensor tensor;
    tensor.name = "layer_" + std::to_string(at);
    tensor.shape = {bytes / kTensors / 4};
    std::vector<std::byte> content(static_cast<std::size_t>(bytes / kTensors));
    for (std::size_t byte = 0; byte < content.size(); byte += 8)
      content[byte] = static_cast<std::byte>(byte * 31 >> 5);
    state[kind::parameters].tensors.push_back(owning(std::move(tensor), content));
  }
  return state;
}

/// Seconds of a plain write and fsync; the file is gone afterwards.
double plain_s(const std::string& path, const State& state) {
  const double start_s = monotonic_s();
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  for (const Tensor& tensor : state.find(kind::parameters)->tensors) {
    std::size_t done = 0;
    while (done < tensor.bytes.size()) {
      const ssize_t count = ::write(file, tensor.bytes.data() + done, tensor.bytes.size() - done);
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
    }
  }
  ::fsync(file);
  ::close(file);
  const double end_s = monotonic_s();
  ::unlink(path.c_str());
  return end_s - start_s;
}

void save_beside_plain_write(benchmark::State& state) {
  const std::string folder = new_folder();
  if (folder.empty()) return state.SkipWithError("no folder can be made here");
  const State content = state_of(state.range(0) * kMebibyte);
  AloneGroup group;
  SaveOptions options;
  options.root = folder + "/checkpoints";
  options.config_hash = "benchmark";
  options.keep_last = 1;
  std::vector<double> plain, saved, ratio;
  int64_t step = 0;
  for (auto _ : state) {
    // Either goes first in turn; what a save deletes is not part of the plain write, so the old one goes
    // before.
    std::filesystem::remove_all(options.root);
    const auto save = [&] {
      Saver saver(options, posix_storage(), group);
      const double start_s = monotonic_s();
      const SaveOutcome outcome = saver.save({0, ++step}, content);
      saved.push_back(monotonic_s() - start_s);
      if (!outcome) state.SkipWithError(outcome.problem.c_str());
    };
    const bool save_first = step % 2 == 1;
    if (save_first) save();
    plain.push_back(plain_s(folder + "/plain", content));
    if (!save_first) save();
    ratio.push_back(saved.back() / plain.back());
    state.SetIterationTime(saved.back());
  }
  LoadOptions load_from;
  load_from.root = options.root;
  if (load(load_from, posix_storage(), group).manifest.step != step)
    state.SkipWithError("what was saved does not load");
  std::filesystem::remove_all(folder);
  state.counters["plain_s"] = median(plain);
  state.counters["save_s"] = median(saved);
  state.counters["ratio"] = median(saved) / median(plain);
  state.counters["ratio_pairs"] = median(ratio);
  state.counters["pairs"] = static_cast<double>(saved.size());
}

BENCHMARK(save_beside_plain_write)
    ->Arg(16)
    ->Arg(256)
    ->Iterations(21)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep::checkpoint
