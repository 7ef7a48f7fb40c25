#pragma once
// Two launchers behind one: runs of one process stay on this machine, real ranks go wherever the other one brings them.

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "harness/plan/matrix/checks.h"
#include "harness/run/launchers/launcher.h"

namespace lockstep {

class SplitLauncher : public Launcher {
 public:
  using Make = std::function<std::unique_ptr<Launcher>()>;
  /// Each is made when its first run starts.
  SplitLauncher(Make make_single, Make make_ranks);

  void start(const RankStart& what) override;
  void stop(const std::string& run, int signal) override;
  std::vector<LauncherEvent> poll(double wait_s) override;
  void shut_down(double deadline_s) override;

 private:
  struct Half {
    Make make;
    std::unique_ptr<Launcher> launcher;
    double made_at = 0;
    bool ready = false;
    Launcher& get();
  };
  void take(Half& half, double wait_s, std::vector<LauncherEvent>& events);

  Half single_, ranks_;
  std::set<std::string> of_one_process_;
  bool told_ready_ = false;
};

/// The launcher that `choice` names; null for the local one, which is launch()'s own. `slurm` is of the job that this
/// process is in; what its agents say goes to OUT/agents.log. Throws ConfigError where its program is missing.
std::function<std::unique_ptr<Launcher>()> launcher_maker(const LauncherChoice& choice, const std::string& rank_program,
                                                          const std::string& out_dir);

/// The same for runs whose ranks are a command of the user's: with the probe of this installation, and the launcher's own words in front where
/// the command does not start its ranks itself. Throws ConfigError for `slurm`, whose agents start lockstep-rank alone.
std::function<std::unique_ptr<Launcher>()> command_launcher_maker(const LauncherChoice& choice);

}  // namespace lockstep
