#pragma once
// A few ranks that save and load small states in memory, each a thread.

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/lib/checkpoint/storage.h"
#include "tests/support/ranks.h"

namespace lockstep::checkpoint::support {

/// Runs `rank` once for each, at the same time; a rank that returns leaves the group.
inline void run_ranks(int size, const std::function<void(int, Group&)>& rank) {
  std::vector<std::unique_ptr<SocketGroup>> groups = make_socket_groups(size);
  lockstep::support::on_threads(size, [&](int at) {
    SocketGroup& group = *groups[static_cast<std::size_t>(at)];
    rank(at, group);
    group.close();
  });
}

/// The same in processes; their codes.
inline std::vector<int> run_processes(int size, const std::function<int(int, Group&)>& rank) {
  std::vector<std::unique_ptr<SocketGroup>> groups = make_socket_groups(size);
  const std::vector<pid_t> processes = lockstep::support::forked(size, [&](int at) {
    for (int other = 0; other < size; ++other) {
      if (other != at) groups[static_cast<std::size_t>(other)]->close();
    }
    return rank(at, *groups[static_cast<std::size_t>(at)]);
  });
  for (const auto& group : groups) group->close();
  return lockstep::support::codes_of(processes);
}

inline Tensor floats(const std::string& name, std::vector<int64_t> shape, float first,
                     Placement placement = Placement::replicated, Slice slice = {}) {
  Tensor tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  tensor.placement = placement;
  tensor.slice = slice;
  const Slice held = tensor.held();
  std::vector<float> values(static_cast<std::size_t>(held.end - held.begin));
  std::iota(values.begin(), values.end(), first + static_cast<float>(held.begin));
  return owning(std::move(tensor), std::as_bytes(std::span(values)));
}

inline std::vector<float> floats_in(const Tensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

/// A state with every kind that there is; what it holds follows from the step, and a rank's part from the
/// rank.
inline State state_at(int64_t step, int rank, int size) {
  State state;
  const float base = static_cast<float>(1000 * step);
  state[kind::parameters].tensors = {floats("w", {3, 5}, base), floats("bias", {5}, base + 20)};
  for (const char* name : {"first_moment/w", "second_moment/w"}) {
    state[kind::moments].tensors.push_back(
        floats(name, {3, 5}, base + 100, Placement::sharded, even_slice(15, rank, size)));
  }
  state[kind::optimizer_step].values["updates"] = step;
  state[kind::scheduler].values = {{"warm_up_done", true}, {"rate", 0.125}};
  state[kind::accumulation].values["micro_batches"] = step % 3;
  state[kind::accumulation].tensors = {
      floats("gradient/w", {2}, base + static_cast<float>(300 + rank), Placement::per_rank)};
  put_position(state,
               {.epoch = step / 10, .samples = 97, .seed = 7, .permutation_hash = "p", .cursor = step % 97});
  state["stream/dropout"].rank_values["words"] = {step, rank};
  state["stream/noise"].values["counter"] = 5 * step;
  state[kind::best_metric].values["recall"] = 0.5;
  state[kind::patience].values["checks_left"] = 3;
  state[kind::loss_scale].values["scale"] = 65536;
  state[kind::averaged_weights].tensors = {floats("w", {3, 5}, base + 400)};
  state[kind::normalisers].values["mean"] = 0.25;
  state[kind::control_values].values["rate"] = 0.125;
  state[kind::cached_controls].values["rate"] = 0.125;
  return state;
}

inline constexpr const char* kRoot = "/run/checkpoints";

/// A disk with an empty folder for runs.
inline MemoryStorage empty_disk() {
  MemoryStorage disk;
  disk.put_folder("/run");
  return MemoryStorage(disk);
}

inline SaveOptions save_options() {
  SaveOptions options;
  options.root = kRoot;
  options.config_hash = "config";
  options.deadline_s = 20;
  return options;
}

inline SaveOptions keeping_last(int checkpoints) {
  SaveOptions options = save_options();
  options.keep_last = checkpoints;
  return options;
}

/// All ranks save this step; their outcomes by rank.
inline std::vector<SaveOutcome> save_on(Storage& disk, int64_t step, int size,
                                        const SaveOptions& options = save_options(), bool best = false) {
  std::vector<SaveOutcome> outcomes(static_cast<std::size_t>(size));
  run_ranks(size, [&](int rank, Group& group) {
    Saver saver(options, disk, group);
    outcomes[static_cast<std::size_t>(rank)] =
        saver.save({step / 10, step, best}, state_at(step, rank, size));
  });
  return outcomes;
}

inline LoadOptions load_options() {
  LoadOptions options;
  options.root = kRoot;
  options.config_hash = "config";
  options.deadline_s = 20;
  return options;
}

inline std::vector<LoadOutcome> load_on(Storage& disk, int size,
                                        const LoadOptions& options = load_options()) {
  std::vector<LoadOutcome> outcomes(static_cast<std::size_t>(size));
  run_ranks(size, [&](int rank, Group& group) {
    outcomes[static_cast<std::size_t>(rank)] = load(options, disk, group);
  });
  return outcomes;
}

/// What is wrong with a loaded state that should be this step's, on each rank; empty: nothing.
inline std::string wrong_with(const std::vector<LoadOutcome>& outcomes, int64_t step) {
  const int size = static_cast<int>(outcomes.size());
  for (int rank = 0; rank < size; ++rank) {
    const LoadOutcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    if (outcome.loaded != Loaded::loaded) return "rank " + std::to_string(rank) + ": " + outcome.problem;
    const std::vector<std::string> differences = state_differences(state_at(step, rank, size), outcome.state);
    if (!differences.empty()) return "rank " + std::to_string(rank) + ": " + differences.front();
  }
  return "";
}

/// Lets operations fail, or cuts the power: from an operation on nothing is done any more.
class FaultHook final : public Hook {
 public:
  int64_t fail_at = -1;
  int error = 0;
  bool performed = false;
  std::size_t most_bytes = std::string_view::npos;
  int64_t dead_from = -1;
  std::string dead_at;  ///< part of an operation's words: from the first of those on
  std::vector<std::string> seen;

  Intervention before(const Operation& operation) override {
    seen.push_back(in_words(operation));
    if (!dead_at.empty() && dead_from < 0 && seen.back().find(dead_at) != std::string::npos)
      dead_from = operation.number;
    if (dead_from >= 0 && operation.number >= dead_from) return {.error = {EIO, std::generic_category()}};
    if (operation.number == fail_at) {
      return {.error = {error, std::generic_category()}, .performed = performed, .most_bytes = most_bytes};
    }
    return {.most_bytes = most_bytes};
  }
};

/// A disk as a hook has it.
struct HookedDisk {
  HookedDisk(Storage& disk, Hook& hook) : seam(hook), storage(disk, seam) {}
  operator Storage&() { return storage; }
  Seam seam;
  HookedStorage storage;
};

}  // namespace lockstep::checkpoint::support
