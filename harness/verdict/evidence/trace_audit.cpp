#include "harness/verdict/evidence/trace_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "harness/verdict/evidence/align.h"
#include "harness/verdict/trace/reader.h"

namespace lockstep {
namespace {

/// Calls `take(step number from 0, rank, records)` for every training step of every rank; returns the number
/// of steps.
template <typename F>
std::size_t for_each_step(const std::string& run_dir, int world_size, F take) {
  std::optional<std::size_t> steps;
  for (int rank = 0; rank < world_size; ++rank) {
    TraceReader reader(fmt::format("{}/rank-{}.trace", run_dir, rank));
    std::size_t count = 0;
    while (const std::optional<StepRecords> step = reader.next()) {
      // Step -1 holds the initial parameters.
      if (step->step >= 0) take(count++, static_cast<std::size_t>(rank), step->records);
    }
    if (steps && *steps != count) {
      throw std::runtime_error(
          fmt::format("{}: rank {} has {} steps, rank 0 has {}", run_dir, rank, count, *steps));
    }
    steps = count;
  }
  return steps.value_or(0);
}

template <typename T>
T& at_step(std::vector<std::vector<T>>& steps, std::size_t step, std::size_t rank, int world_size) {
  if (steps.size() <= step) steps.resize(step + 1, std::vector<T>(static_cast<std::size_t>(world_size)));
  return steps[step][rank];
}

std::vector<int64_t> all_ids(const std::vector<std::vector<int64_t>>& ranks) {
  std::vector<int64_t> ids;
  for (const std::vector<int64_t>& rank : ranks) ids.insert(ids.end(), rank.begin(), rank.end());
  return ids;
}

std::vector<int64_t> sorted(std::vector<int64_t> ids) {
  std::ranges::sort(ids);
  return ids;
}

/// Steps at which epochs begin: where a sample comes back. Then the number of steps.
std::vector<std::size_t> epochs_of(const SampleLedger& run) {
  std::vector<std::size_t> starts{0};
  std::unordered_set<int64_t> seen;
  for (std::size_t step = 0; step < run.ids.size(); ++step) {
    const std::vector<int64_t> ids = all_ids(run.ids[step]);
    if (std::ranges::any_of(ids, [&](int64_t id) { return seen.contains(id); })) {
      starts.push_back(step);
      seen.clear();
    }
    seen.insert(ids.begin(), ids.end());
  }
  starts.push_back(run.ids.size());
  return starts;
}

}  // namespace

SampleLedger read_samples(const std::string& run_dir, int world_size) {
  SampleLedger ledger;
  for_each_step(run_dir, world_size, [&](std::size_t step, std::size_t rank, const auto& records) {
    std::vector<int64_t>& ids = at_step(ledger.ids, step, rank, world_size);
    for (const Record& record : records) {
      if (record.phase == Phase::samples) ids.insert(ids.end(), record.ids.begin(), record.ids.end());
    }
  });
  return ledger;
}

AuditAnswer same_samples(const SampleLedger& run, const SampleLedger& other) {
  if (run.ids.size() != other.ids.size()) {
    return {false, fmt::format("{} against {} steps", run.ids.size(), other.ids.size())};
  }
  for (std::size_t step = 0; step < run.ids.size(); ++step) {
    if (sorted(all_ids(run.ids[step])) != sorted(all_ids(other.ids[step]))) {
      return {false, fmt::format("other samples at step {}", step)};
    }
  }
  return {true, fmt::format("the same samples at each of {}",
                            counted(static_cast<int64_t>(run.ids.size()), "step"))};
}

AuditAnswer equal_counts(const SampleLedger& run) {
  for (std::size_t step = 0; step < run.ids.size(); ++step) {
    for (std::size_t rank = 1; rank < run.ids[step].size(); ++rank) {
      if (run.ids[step][rank].size() == run.ids[step][0].size()) continue;
      return {false, fmt::format("step {}: rank {} has {} rows, rank 0 has {}", step, rank,
                                 run.ids[step][rank].size(), run.ids[step][0].size())};
    }
  }
  return {true, run.ids.empty() ? "no step"
                                : fmt::format("{} at every step on every rank",
                                              counted(static_cast<int64_t>(run.ids[0][0].size()), "row"))};
}

AuditAnswer each_sample_once(const SampleLedger& run) {
  for (std::size_t step = 0; step < run.ids.size(); ++step) {
    std::unordered_set<int64_t> here;
    for (std::size_t rank = 0; rank < run.ids[step].size(); ++rank) {
      for (const int64_t id : run.ids[step][rank]) {
        if (!here.insert(id).second) {
          return {false,
                  fmt::format("step {}: rank {} has sample {}, which the step has already", step, rank, id)};
        }
      }
    }
  }
  const std::vector<std::size_t> epochs = epochs_of(run);
  const std::size_t length = epochs[1] - epochs[0];
  for (std::size_t e = 1; e + 2 < epochs.size(); ++e) {
    if (epochs[e + 1] - epochs[e] != length) {
      return {false, fmt::format("a sample recurs after {} steps at step {}, but after {} in the first epoch",
                                 epochs[e + 1] - epochs[e], epochs[e + 1], length)};
    }
  }
  const std::size_t rows = run.ids.empty() ? 0 : all_ids(run.ids[0]).size();
  if (epochs.size() < 3)
    return {true, fmt::format("{} steps within one epoch, no sample twice", run.ids.size())};
  return {true, fmt::format("{} epochs of {} steps, {} samples each once", epochs.size() - 2, length,
                            length * rows)};
}

AuditAnswer reshuffled(const SampleLedger& run) {
  const std::vector<std::size_t> epochs = epochs_of(run);
  if (epochs.size() < 3 || epochs[1] >= run.ids.size()) return {false, "the run has no second epoch"};
  const bool same = run.ids[epochs[1]] == run.ids[0];
  return {!same, same ? fmt::format("step {} repeats step 0", epochs[1])
                      : fmt::format("the second epoch begins at step {} with other samples", epochs[1])};
}

DrawLedger read_draws(const std::string& run_dir, int world_size) {
  DrawLedger ledger;
  for_each_step(run_dir, world_size, [&](std::size_t step, std::size_t rank, const auto& records) {
    std::vector<DrawLedger::Draw>& draws = at_step(ledger.draws, step, rank, world_size);
    for (const Record& record : records) {
      if (record.phase == Phase::random) draws.push_back({record.name, record.stats.hash});
    }
  });
  return ledger;
}

AuditAnswer ranks_draw_apart(const DrawLedger& run) { return runs_draw_apart({run}, {0}); }

AuditAnswer runs_draw_apart(const std::vector<DrawLedger>& runs, const std::vector<int64_t>& seeds) {
  struct Who {
    int64_t seed;
    std::size_t rank;
  };
  std::size_t compared = 0, steps = 0;
  for (const DrawLedger& run : runs) steps = std::max(steps, run.draws.size());
  for (std::size_t step = 0; step < steps; ++step) {
    std::map<std::pair<std::string, uint64_t>, Who> seen;
    for (std::size_t r = 0; r < runs.size(); ++r) {
      if (step >= runs[r].draws.size()) continue;
      for (std::size_t rank = 0; rank < runs[r].draws[step].size(); ++rank) {
        for (const DrawLedger::Draw& draw : runs[r].draws[step][rank]) {
          ++compared;
          const auto [at, is_new] =
              seen.emplace(std::pair(draw.stream, draw.fingerprint), Who{seeds[r], rank});
          if (is_new) continue;
          const std::string first = runs.size() == 1
                                        ? fmt::format("rank {}", at->second.rank)
                                        : fmt::format("seed {} rank {}", at->second.seed, at->second.rank);
          const std::string second = runs.size() == 1 ? fmt::format("rank {}", rank)
                                                      : fmt::format("seed {} rank {}", seeds[r], rank);
          return {false,
                  fmt::format("step {}: {} and {} draw the same {}", step, first, second, draw.stream)};
        }
      }
    }
  }
  if (compared == 0) return {false, "no random numbers were drawn"};
  return {true, fmt::format("{} streams of {}, no two alike", compared,
                            counted(static_cast<int64_t>(steps), "step"))};
}

}  // namespace lockstep
