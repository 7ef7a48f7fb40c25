#pragma once
// The probe: the Python package lockstep_probe, which records what a trainer computes that is not lockstep's. Where it is, how a command is
// told to use it, and what it left.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/trace/rank_result.h"
#include "harness/plan/matrix/plan_history.h"

namespace lockstep {

/// Where the probe may be: the folder that $LOCKSTEP_PROBE names, else those beside `program`, best first.
std::vector<std::string> probe_places(const std::string& program, const std::string& chosen);

/// The first of these that holds the probe: lockstep_probe/startup/sitecustomize.py. Throws ConfigError that names what was tried and what
/// to do.
std::string find_probe();

/// Identity of runs of a command: the probe's bytes stand for the build, and which PyTorch there is only the runs tell.
BuildIdentity probe_identity(const std::string& probe, const std::string& data_hash);

/// What a process is told of its tracing. Empty: not told.
struct ProbeSettings {
  std::string trace;      ///< folder of its traces, an absolute path
  std::string level;      ///< hash, stats, full
  std::string snapshots;  ///< steps before which the state is kept: "0,1,10"
  std::string every;      ///< steps between recorded ones
  std::string led_by;     ///< folder of the run that leads this one, an absolute path
  std::string steps;      ///< how many of the first steps, or which: the program ends after the last
  bool float64 = false;   ///< all is computed in float64
  bool no_dropout = false;
  std::string heartbeat;  ///< the run's heartbeat file, an absolute path
  std::string run;        ///< what traces give as config_hash
};

/// Variables that switch the probe on, in place of those of the same name: LOCKSTEP_…, and PYTHONPATH with the probe's folders before what
/// it is.
std::vector<std::pair<std::string, std::string>> probe_variables(const std::string& probe, const ProbeSettings& settings);

/// This process's environment with these variables in place of its own.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& variables);

/// Which comparisons such a record allows, and what was not seen: one line each.
std::string judged_with(const ProbeReport& report);
std::string not_seen(const ProbeReport& report);

/// A rank's trace, read through.
struct RecordedRank {
  bool there = false;
  std::string problem;    ///< damaged, or of another rank: why
  int world_size = 1;
  std::string level;
  int64_t steps = 0;      ///< training steps that are whole: from step 0 on
  int64_t last_step = -1;
  bool whole = false;     ///< it has its end mark
  std::string end;        ///< how it ends otherwise, in words
  uint64_t bytes = 0;
  Series loss;                           ///< of the rank
  std::map<std::string, Series> metrics; ///< scalars of the evaluation phase
};
RecordedRank read_recorded_rank(const std::string& dir, int rank);

}  // namespace lockstep
