#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/trace/rank_result.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/run/launchers/command/starter.h"
#include "harness/run/launchers/launcher.h"

// Runs whose ranks are a command of the user's, with the probe switched on (docs/config.md, trainer: command). The command starts its ranks
// itself, or it is started once for each. Ranks make themselves known by their heartbeats and rank-<r>.hello.json, which
// probe/python/lockstep_probe/heartbeat.py writes; what they leave becomes their results when they end.

namespace lockstep {

class CommandLauncher : public GatheringLauncher {
 public:
  /// `before`: words in front of a command, which start it on {ranks} ranks, for commands that do not start them
  /// themselves; empty: lockstep does. `starter`: forks what is nothing but a Python program, or null. `nodes`: share
  /// out runs whose number of ranks is a multiple of theirs, or null.
  CommandLauncher(std::string probe, std::vector<std::string> before, std::shared_ptr<Starter> starter = nullptr,
                  CommandNodes* nodes = nullptr);
  ~CommandLauncher() override;

  void start(const RankStart& what) override;
  void stop(const std::string& run, int signal) override;
  void tell(const std::string&, const std::string&) override {}
  std::vector<LauncherEvent> poll(double wait_s) override;
  void shut_down(double deadline_s) override;

 private:
  struct Rank {
    bool ended = false;
    ProcessId said, process{-1};  ///< which process it says that it is, and the same as it is numbered here
    double gone_at = 0;   ///< when its process was seen to be gone, and its launcher was not; 0: it is there, or nobody knows it
    double threw_at = 0;  ///< when it was seen to have said why it fails; 0: it has not
    bool greeted = false;
  };
  struct Going {
    RankStart what;
    std::string dir;   ///< absolute
    std::string hash;  ///< of the run's config
    CommandLine line;
    bool has_launcher = false;          ///< one process, which starts the ranks
    std::vector<pid_t> processes;       ///< by rank, or that one; -1: it has ended
    std::vector<Rank> ranks;
    std::optional<HeartbeatFile> heartbeats;
    std::string first_hello;            ///< versions that the first rank named
    bool killed = false, told = false, on_nodes = false;
    double well_at = 0;                 ///< when no part of another node had failed
  };
  void start_process(Going& going, int rank, const std::vector<std::pair<std::string, std::string>>& variables);
  std::vector<std::pair<std::string, std::string>> variables_of(const Going& going, const RunConfig& config) const;
  void look(Going& going, double now);
  void look_at_hellos(Going& going);
  void look_at_ranks(Going& going, double now);
  void refuse(Going& going, int rank, const std::string& why);
  void launcher_ended(Going& going, int code, int signal);
  void end_rank(Going& going, int rank, int code, int signal, bool told);
  void kill_all(Going& going);
  bool all_ended(const Going& going) const;

  std::string probe_;
  std::vector<std::string> before_;
  std::shared_ptr<Starter> starter_;
  CommandNodes* nodes_;
  std::map<std::string, Going> going_;
};

// What a rank of a command leaves, as the result of a rank: its trace and the log that its config names, or why it failed.

struct RankLeft {
  std::string dir, hash;  ///< the run's folder and the hash of its config
  int rank = 0, world_size = 1;
  std::string operation;  ///< what it reported last
};

/// Its trace is there and has its end mark.
bool is_whole(const RankLeft& left);

/// rank-<r>.error, in which the probe writes an exception that nobody caught: "ValueError: no such file"; empty: there is none.
std::string thrown_error(const RankLeft& left);

/// What torchrun says at its end of the ranks that failed: a status, or -9 for signal 9.
std::map<int, int> exit_codes_in(const std::string& log);

/// Metrics by name from a log of values by step: a .csv with a header, a .jsonl with an object a line, or TensorBoard's events, a file or a
/// folder of them. Throws std::runtime_error that says what is wrong with it.
std::map<std::string, Series> metrics_in_log(const std::string& path);

}  // namespace lockstep
