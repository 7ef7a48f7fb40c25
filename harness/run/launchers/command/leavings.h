#pragma once
// What a rank of a command leaves, as the result of a rank: its trace and the log that its config names, or why it failed.

#include <map>
#include <string>

#include "harness/verdict/trace/rank_result.h"

namespace lockstep {

struct RankLeft {
  std::string dir, hash;  ///< the run's folder and the hash of its config
  int rank = 0, world_size = 1;
  std::string operation;  ///< what it reported last
};

/// Its trace is there and has its end mark.
bool is_whole(const RankLeft& left);

/// Of a rank whose process ended well: finished, with the curves and metrics of its trace and (rank 0) of the log; or failed, if it left no
/// whole trace.
void write_finished(const RankLeft& left, const std::string& metrics_from);
void write_failed(const RankLeft& left, const std::string& error);

/// rank-<r>.error, in which the probe writes an exception that nobody caught: "ValueError: no such file"; empty: there is none.
std::string thrown_error(const RankLeft& left);

/// What torchrun says at its end of the ranks that failed: a status, or -9 for signal 9.
std::map<int, int> exit_codes_in(const std::string& log);

/// The log of a command that started its ranks itself, in place of the rank's own: up to where torchrun reports on them.
void write_excerpt(const std::string& log, const RankLeft& left);

/// Metrics by name from a log of values by step: a .csv with a header, a .jsonl with an object a line, or TensorBoard's events, a file or a
/// folder of them. Throws std::runtime_error that says what is wrong with it.
std::map<std::string, Series> metrics_in_log(const std::string& path);

}  // namespace lockstep
