#pragma once
// rank-R.exit.json: how a rank's process ended, by the word of the process that had forked it, or that gave up before.

#include <optional>
#include <string>

namespace lockstep {

/// The phase in the result of a rank that gave up before it was forked: it says itself whom it could not meet.
inline constexpr const char* kNotBegun = "launch";

struct RankExit {
  std::string start;  ///< Met::start
  int rank = 0;
  int code = 0;    ///< status, if signal is 0
  int signal = 0;  ///< that ended it
  bool told = false;     ///< a signal had been handed on to it, by the launcher or at lockstep's wish
  bool orphaned = false; ///< its own process ended it, because the launcher's process above was gone
  double ended_at = 0;  ///< seconds since 1970, by its host's clock
  std::string attempt = {};  ///< Watcher::attempt; empty: the command did not pass it on
};

void write_exit(const std::string& run_dir, const RankExit& exit);
/// Nothing while there is none.
std::optional<RankExit> read_exit(const std::string& run_dir, int rank);
std::string exit_file(const std::string& run_dir, int rank);

/// A wish of lockstep's that reaches ranks on all hosts: the n-th signal that each rank shall get.
struct StopWish {
  int number = 0;  ///< from 1; 0: none
  int signal = 0;
};
void write_stop(const std::string& run_dir, const StopWish& wish);
StopWish read_stop(const std::string& run_dir);
std::string stop_file(const std::string& run_dir);

}  // namespace lockstep
