#include "harness/run/failure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "harness/base/text.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/trace/rank_result.h"
#include "harness/verdict/trace/reader.h"

namespace lockstep {
namespace {

constexpr std::size_t kLastLines = 20;

/// What one rank, or the process that was all ranks, has to say for itself.
struct Finding {
  bool failed = false;
  bool lost_peers = false;
  int rank = -1;
  FailureKind kind = FailureKind::died;
  std::string message, phase;
};

struct Testimony {
  enum class Kind { none, unreadable, finished, failed } kind = Kind::none;
  std::string message, phase;
  bool stopped = false;  ///< in order, after an agreed step, because a signal asked for it
};

Testimony testimony_of(const std::string& dir, int rank) {
  const std::string path = rank_result_path(dir, rank);
  if (::access(path.c_str(), F_OK) != 0) return {};
  try {
    const RankResult result = read_rank_result(path);
    if (result.status == "finished") return {Testimony::Kind::finished, {}, result.phase, false};
    const std::string message = result.error.empty() ? "ended as '" + result.status + "'" : result.error;
    return {Testimony::Kind::failed, message, result.phase, result.status == "interrupted"};
  } catch (const std::runtime_error& error) {
    // A rank may die while it writes: what it left is evidence against it, not a fault of ours.
    return {Testimony::Kind::unreadable, error.what(), {}, false};
  }
}

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("killed by signal {}", signal)
                         : fmt::format("killed by signal {} (SIG{})", signal, name);
}

Finding thrown(int rank, const Testimony& testimony) {
  const bool began = testimony.phase != kNotBegun;
  return {true, began && only_lost_its_peers(testimony.message), rank, testimony.stopped ? FailureKind::interrupted : FailureKind::threw,
          testimony.message, testimony.phase};
}

Finding judge_one(const RunEnds& ends, const RankEnd& end) {
  const Testimony testimony = testimony_of(ends.dir, end.rank);
  if (testimony.kind == Testimony::Kind::failed) return thrown(end.rank, testimony);
  if (!end.lost.empty()) return {true, false, end.rank, FailureKind::lost, end.lost, {}};
  if (end.signal != 0) return {true, end.killed_by_us, end.rank, FailureKind::died, signal_text(end.signal), {}};
  switch (testimony.kind) {
    case Testimony::Kind::unreadable:
      return {true, false, end.rank, FailureKind::died, testimony.message, {}};
    case Testimony::Kind::none:
      return {true, false, end.rank, FailureKind::died, fmt::format("exited with status {} without a result", end.code),
              {}};
    default:
      break;
  }
  if (end.code == 0) return {};
  return {true, false, end.rank, FailureKind::died, fmt::format("exited with status {} after it had finished", end.code),
          {}};
}

/// The process held every rank, so its end names none of them; their results do.
Finding judge_all(const RunEnds& ends, const RankEnd& end) {
  Finding first;
  int without_result = -1;
  for (int rank = 0; rank < ends.world_size; ++rank) {
    const Testimony testimony = testimony_of(ends.dir, rank);
    if (testimony.kind == Testimony::Kind::failed) {
      Finding finding = thrown(rank, testimony);
      if (!first.failed || (first.lost_peers && !finding.lost_peers)) first = finding;
    } else if (testimony.kind != Testimony::Kind::finished && without_result < 0) {
      without_result = rank;
    }
  }
  if (first.failed) return first;
  if (ends.world_size == 1) return judge_one(ends, {0, end.code, end.signal, end.killed_by_us, end.lost});
  if (!end.lost.empty()) return {true, false, -1, FailureKind::lost, end.lost, {}};
  const std::string all = fmt::format(" (the process that holds all {} ranks)", ends.world_size);
  if (end.signal != 0) return {true, end.killed_by_us, -1, FailureKind::died, signal_text(end.signal) + all, {}};
  if (without_result >= 0) {
    const auto message =
        fmt::format("exited with status {} without a result of rank {}", end.code, without_result);
    return {true, false, end.code == 0 ? without_result : -1, FailureKind::died, message, {}};
  }
  if (end.code == 0) return {};
  return {true, false, -1, FailureKind::died, fmt::format("exited with status {} after it had finished", end.code) + all,
          {}};
}

Finding judge_end(const RunEnds& ends, const RankEnd& end) {
  return end.rank < 0 ? judge_all(ends, end) : judge_one(ends, end);
}

/// Empty: it cannot be read, which whoever reads all of it says.
std::string hash_in_trace(const std::string& trace) {
  try {
    return TraceReader(trace).header().config_hash;
  } catch (const TraceError&) {
    return "";
  }
}

RankFailure failure_of(const RunEnds& ends, const Finding& finding) {
  RankFailure failure;
  failure.run = ends.run;
  failure.kind = finding.kind;
  failure.rank = finding.rank;
  failure.message = finding.message;
  const int heartbeat_rank = std::max(finding.rank, 0);
  // Of a rank that was refused before it began, it does not matter how far it came meanwhile.
  if (finding.phase != kNotBegun && ends.heartbeat != nullptr && heartbeat_rank < ends.heartbeat->world_size()) {
    failure.step = ends.heartbeat->step(heartbeat_rank);
    failure.operation = ends.heartbeat->operation(heartbeat_rank);
  }
  if (failure.operation.empty()) failure.operation = finding.phase;
  const std::string own_log = rank_log_path(ends.dir, finding.rank);
  const bool has_own_log = ::access(own_log.c_str(), F_OK) == 0;  // else all ranks share one
  failure.last_lines = last_lines(has_own_log ? own_log : rank_log_path(ends.dir, -1), kLastLines);
  return failure;
}

}  // namespace

bool only_lost_its_peers(const std::string& message) {
  // As Gloo, NCCL, the store, the kernel and our own collectives put it.
  constexpr std::array<std::string_view, 10> kSigns = {
      "closed by peer", "reset by peer", "broken pipe", "timed out",         "timeout",
      "another rank",   "lost its peer", "other rank",  "connection refused", "ncclremoteerror"};
  std::string lower(message);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](std::string_view sign) { return lower.find(sign) != std::string::npos; });
}

std::optional<RankFailure> name_failure(const RunEnds& ends) {
  // A rank that failed by itself takes the launcher with it, and with that others of whose end nothing is known.
  const auto weight = [](const Finding& finding) { return finding.lost_peers ? 0 : finding.kind == FailureKind::lost ? 1 : 2; };
  std::optional<Finding> first;
  for (const RankEnd& end : ends.ends) {
    const Finding finding = judge_end(ends, end);
    if (finding.failed && (!first || weight(finding) > weight(*first))) first = finding;
  }
  if (!first) return std::nullopt;
  if (first->lost_peers && first->rank >= 0) {
    if (auto left = left_early(ends, first->rank, first->message)) return left;
  }
  return failure_of(ends, *first);
}

std::optional<RankFailure> said_failure(const RunEnds& ends, int rank) {
  const Testimony testimony = testimony_of(ends.dir, rank);
  if (testimony.kind != Testimony::Kind::failed) return std::nullopt;
  const Finding finding = thrown(rank, testimony);
  return finding.lost_peers ? std::nullopt : std::optional(failure_of(ends, finding));
}

std::optional<RankFailure> left_early(const RunEnds& ends, int waiting, const std::string& why) {
  if (ends.heartbeat == nullptr || waiting < 0) return std::nullopt;
  const int64_t waits_at = ends.heartbeat->step(waiting);
  for (const RankEnd& end : ends.ends) {
    if (end.rank < 0 || end.rank == waiting || judge_end(ends, end).failed) continue;
    const int64_t done = read_rank_result(rank_result_path(ends.dir, end.rank)).steps_done;
    if (done > waits_at) continue;
    const std::string message = fmt::format("left with status 0 after {}, while rank {} is at step {} and waits for it; rank {}: {}",
                                            counted(done, "step"), waiting, waits_at, waiting, why);
    return failure_of(ends, {true, false, end.rank, FailureKind::died, message, {}});
  }
  return std::nullopt;
}

std::optional<RankFailure> unreadable_failure(const RunEnds& ends, const PlannedRun& run) {
  const auto unreadable = [&ends](int rank, const std::string& message) {
    RankFailure failure = failure_of(ends, {true, false, rank, FailureKind::unreadable, message, "write"});
    failure.last_lines.clear();  // of a rank that finished: they say nothing of its files
    return failure;
  };
  // A command's probe may have names of its own for runs; its ranks agree on one.
  std::string trace_hash = run.hash;
  for (int rank = 0; rank < ends.world_size; ++rank) {
    const std::string path = rank_result_path(ends.dir, rank);
    try {
      const RankResult result = read_rank_result(path);
      if (!result.config_hash.empty() && result.config_hash != run.hash) {
        return unreadable(rank, fmt::format("{} is of a run with the config hash {}, where {} was expected",
                                            path, result.config_hash, run.hash));
      }
    } catch (const std::runtime_error& error) {
      return unreadable(rank, error.what());
    }
    const std::string trace = fmt::format("{}/rank-{}.trace", ends.dir, rank);
    if (::access(trace.c_str(), F_OK) != 0) continue;  // none at the level `off`
    if (rank == 0 && spec_of(run.config).is_command()) trace_hash = hash_in_trace(trace);
    if (const std::string problem = trace_problem(trace, trace_hash, rank); !problem.empty()) {
      return unreadable(rank, problem);
    }
  }
  return std::nullopt;
}

bool all_lost_their_peers(const RunEnds& ends) {
  return std::all_of(ends.ends.begin(), ends.ends.end(), [&](const RankEnd& end) {
    const Finding finding = judge_end(ends, end);
    return !finding.failed || (finding.lost_peers && !left_early(ends, finding.rank, ""));
  });
}

RankFailure stalled_failure(const RunEnds& ends, FailureKind kind, int rank, const std::string& message) {
  return failure_of(ends, {true, false, rank, kind, message, {}});
}

RankFailure interrupted_failure(const RunEnds& ends) {
  RankFailure failure =
      failure_of(ends, {true, false, -1, FailureKind::interrupted, "stopped on request; run again to resume", {}});
  failure.last_lines.clear();
  return failure;
}

bool disk_was_full(const RankFailure& failure) {
  const std::string_view sign = std::strerror(ENOSPC);
  const auto says_so = [&](const std::string& text) { return text.find(sign) != std::string::npos; };
  return says_so(failure.message) ||
         std::any_of(failure.last_lines.begin(), failure.last_lines.end(), says_so);
}

bool disk_is_full(const std::string& folder) {
  constexpr std::uintmax_t kLeastRoom_bytes = 16 * 1024;  // a rank's result, at the least
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  return !error && space.available < kLeastRoom_bytes;
}

}  // namespace lockstep
