#pragma once
// Names what went wrong in a run from how its processes ended and from what its ranks wrote.

#include <optional>
#include <string>
#include <vector>

#include "harness/base/errors.h"
#include "harness/run/watch.h"
#include "harness/verdict/plan/plan.h"

namespace lockstep {

/// A rank that died, threw or hung: a value, never an exception.
struct RankFailure {
  std::string run;
  FailureKind kind = FailureKind::died;
  int rank = -1;     ///< the first that failed
  int64_t step = -1;
  std::string operation;                ///< what it was doing, from its heartbeat
  std::string message;                  ///< "killed by signal 9", or what was thrown
  std::vector<std::string> last_lines;  ///< of its log, at most 20
};

/// How one process of a run ended.
struct RankEnd {
  int rank = -1;  ///< -1: the process was all ranks of the run
  int code = 0;   ///< exit status, if signal is 0
  int signal = 0;
  bool killed_by_us = false;  ///< after the launcher had sent it a signal
  std::string lost = {};      ///< nobody saw its end; what is known of it
};

struct RunEnds {
  std::string run, dir;
  int world_size = 1;
  const HeartbeatFile* heartbeat = nullptr;
  std::vector<RankEnd> ends;  ///< in order of arrival
};

/// Does the message say no more than that other ranks were gone or silent?
bool only_lost_its_peers(const std::string& message);

/// The first failing rank, or nothing if every rank of the run has left a finished result. A rank that only
/// lost its peers is named if no other failed, and none left early; one that is lost, if no other failed by itself.
std::optional<RankFailure> name_failure(const RunEnds& ends);

/// What the rank, whose process may still be there, has said of its own failure; nothing: it has not failed, or only lost its peers.
std::optional<RankFailure> said_failure(const RunEnds& ends, int rank);

/// A rank that ended well after fewer steps than `waiting` had made when it stood still, or lost its peers (`why`): that one waits for it.
std::optional<RankFailure> left_early(const RunEnds& ends, int waiting, const std::string& why);

/// Do all processes that have failed so far say that they only lost their peers, and has none left early?
bool all_lost_their_peers(const RunEnds& ends);

/// A run whose ranks all say that they finished: the first of their files that is damaged, cut short or of
/// another run (unreadable), or nothing. `run`: as planned.
std::optional<RankFailure> unreadable_failure(const RunEnds& ends, const PlannedRun& run);

/// The failure of a run that was killed because `rank` stood still ("hung") or computed for too long ("slow"); `message` says for how long.
RankFailure stalled_failure(const RunEnds& ends, FailureKind kind, int rank, const std::string& message);

/// The same for a run that was stopped at the user's wish.
RankFailure interrupted_failure(const RunEnds& ends);

/// Does any text of the failure say that the disk is full?
bool disk_was_full(const RankFailure& failure);

/// No room is left where `folder` lies: a rank that died silently may have died of the full disk.
bool disk_is_full(const std::string& folder);

}  // namespace lockstep
