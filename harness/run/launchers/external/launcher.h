#pragma once
// Ranks that somebody else starts: torchrun, mpirun, srun or any command that starts lockstep-rank run FOLDER.

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/launchers/launcher.h"

namespace lockstep {

/// Starts each run by a command of its own and learns what happened from the files that each rank's own process leaves
/// (meeting.h, exit_file.h), never from the command's exit status.
class ExternalLauncher : public GatheringLauncher {
 public:
  /// `command`: words with {ranks}, {rank_program} and {run} in them. Throws ConfigError if its program cannot be found;
  /// `install` says then what to do.
  ExternalLauncher(std::string rank_program, std::vector<std::string> command, const std::string& install = "");
  ~ExternalLauncher() override;
  ExternalLauncher(const ExternalLauncher&) = delete;
  ExternalLauncher& operator=(const ExternalLauncher&) = delete;

  void start(const RankStart& what) override;
  /// Leaves the wish where each rank's own process sees it, on whatever host; for SIGKILL the launcher's processes are
  /// ended as well, if ranks do not end within a moment.
  void stop(const std::string& run, int signal) override;
  std::vector<LauncherEvent> poll(double wait_s) override;
  void shut_down(double deadline_s) override;

 private:
  struct Going {
    RankStart what;
    std::string attempt;      ///< Watcher::attempt: files of another one are none of this run's
    pid_t launcher = -1;      ///< -1: reaped
    int launcher_status = 0;
    double started_at = 0;
    double there_at = 0;  ///< when all ranks had arrived; 0: not yet
    bool told_started = false;
    std::vector<bool> ended;
    std::vector<double> gone_at;  ///< by rank: when its processes on this host were found to be gone; 0: not
    double orphans_until = 0;     ///< launcher gone: until then ranks that it has left behind may say how they end
    int wishes = 0;
    bool killed = false;          ///< at lockstep's wish
    double end_launcher_at = 0, kill_launcher_at = 0;  ///< 0: not
  };
  void end_earlier_attempt(const std::string& run);
  static void kill_launcher(Going& going);
  void look(Going& going);
  void look_at_arrivals(Going& going, double now);
  void look_at_exits(Going& going);
  void look_at_processes(Going& going, double now);
  void look_at_launcher(Going& going, double now);
  void end_orphans(Going& going, double now);
  void count_the_lost(Going& going);
  void lose(Going& going, int rank, const std::string& why);
  Arrival arrival(const Going& going, int rank) const;
  bool all_ended(const Going& going) const;
  static std::string how_launcher_ended(const Going& going);

  std::string rank_program_;
  std::vector<std::string> command_;
  HeartbeatServer desk_;  ///< where ranks on other hosts tell how they get on
  std::map<std::string, Going> going_;
};

/// Starts a command that starts ranks, or agents; words.front() is its path. It leads a session of its own, with the niceness that lockstep was
/// started with, with the threads pinned, and without what would make its ranks another launcher's; what it prints is added to the log. Throws
/// MachineError.
pid_t start_command(std::vector<std::string> words, const std::string& log_path);

}  // namespace lockstep
