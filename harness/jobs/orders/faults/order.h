#pragma once

#include <nlohmann/json.hpp>

#include <span>
#include <string>
#include <string_view>

// The labelled suite: every fault that is planted in a small program, what its control run does, and what has to be said of
// it (docs/faults.md). The program stands in harness/jobs/faults/fault_program.cpp.

namespace lockstep::faults {

/// How a fault comes out.
enum class Notice {
  died,      ///< the process of the rank ended; the launcher names it
  hung,      ///< the watch finds a rank that is stopped, asleep or blocked
  slow,      ///< the watch finds a rank that computes for longer than it may
  threw,     ///< the rank itself says what is wrong
  check,     ///< the ranks' headers differ; every rank names who calls what
  guard,     ///< a gradient is not finite; every rank names rank, tensor and element
  audit,     ///< ranks compare rows or state; every rank names who has what
  preflight_check, ///< ranks compare themselves before the first collective; every rank names who differs
  compared,  ///< the run ends well, and differs from the control run's
};
std::string_view to_word(Notice notice);

struct FaultKind {
  std::string_view name, family;
  std::string_view wrong;  ///< what the program does: "rank R sends SIGKILL to itself"
  std::string_view control;   ///< what the correct program does in its place
  Notice notice = Notice::died;
  /// What must be said, with {rank}, {step}, {next} (the rank behind it) and {line} filled in.
  std::string_view says;
  bool checked = true;     ///< the program runs with the check of collectives
};

std::span<const FaultKind> fault_kinds();

// What a suite asks of the small program: run.json's section `fault_case`.

struct Order {
  std::string kind;       ///< of fault_kinds(); empty: no fault is planted
  bool wrong = false;     ///< the wrong program; else its control run
  int world = 3;
  int rank = 0;           ///< whose fault it is
  int64_t step = 0;       ///< at which it acts
  int64_t steps = 5;
  double threshold_s = 0.5;     ///< T, of a step and of an evaluation
  double disk_thresholds = 2;   ///< T of a save and of the teardown, which writes the rank's result: a disk has its own pace
  double disk_threshold_s() const { return disk_thresholds * threshold_s; }
  double straggle_share = 0;    ///< of steps at which a rank is late by T / 2
  double jitter_s = 0;          ///< most that a rank is late at any step
  int64_t seed = 0;
  int port = 0;           ///< of a socket that the suite holds, where the kind has one
  bool records = true;    ///< rank-<r>.record is written, for comparisons
  bool saves = true;      ///< each step ends with a save
  bool checked = true;    ///< with the check of collectives
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Order, kind, wrong, world, rank, step, steps, threshold_s, disk_thresholds,
                                   straggle_share, jitter_s, seed, port, records, saves, checked)

/// What has to be said of the fault.
std::string expected_words(const FaultKind& kind, const Order& order);

}  // namespace lockstep::faults
