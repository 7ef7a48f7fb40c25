#pragma once
// One allocation, many runs: an agent on each node that has LibTorch loaded and forks ranks, commanded over TCP. So a
// cell costs forks, and no step of the scheduler's.

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/run/launchers/gathering.h"
#include "harness/run/launchers/local/protocol.h"
#include "harness/run/launchers/slurm/hello.h"

namespace lockstep {

class AgentLauncher : public GatheringLauncher {
 public:
  /// `command` starts `agents` processes of `rank_program` --agent PLACE KEY, one on each node: words with
  /// {rank_program}, {place} and {key} in them. Its output goes to `log`. Throws MachineError.
  AgentLauncher(const std::string& rank_program, std::vector<std::string> command, int agents, std::string log);
  ~AgentLauncher() override;
  AgentLauncher(const AgentLauncher&) = delete;
  AgentLauncher& operator=(const AgentLauncher&) = delete;

  /// Ranks go in blocks to the nodes that have most room.
  void start(const RankStart& what) override;
  void stop(const std::string& run, int signal) override;
  void tell(const std::string& run, const std::string& why) override;
  /// A node whose agent is gone is told as the loss of its ranks; others go on. When none is left all are started again, twice at most; then
  /// throws MachineError.
  std::vector<LauncherEvent> poll(double wait_s) override;
  void shut_down(double deadline_s) override;

 private:
  struct Agent {
    AgentHello hello;
    std::unique_ptr<LineSocket> socket;
    int busy = 0;      ///< ranks that it runs
    bool here = true;  ///< its socket is open
  };
  struct Part {
    std::size_t agent;
    int first, count;
    bool started = false;
    std::vector<bool> ended;
  };
  struct Going {
    RankStart what;
    std::vector<Part> parts;
    std::vector<int> pids;
    std::vector<std::string> places;
  };

  void send_to_parts(const ParentCommand& command);
  void accept_one();
  void hear(std::size_t agent);
  void take(std::size_t agent, LauncherEvent event);
  void lose(std::size_t agent);
  std::string held(std::size_t agent) const;
  void share(std::size_t from, const LauncherEvent& heartbeat);
  ParentCommand command_for(const RankStart& what, const Part& part, bool one_host) const;
  void look_at_launcher();
  void welcome(std::unique_ptr<LineSocket> socket, const AgentHello& hello);
  std::vector<Part> placed(int processes) const;
  bool complete() const { return agents_.size() == wanted_; }
  void end_launcher(double deadline_s);

  void begin();
  void begin_again();

  std::string key_, log_;
  std::vector<std::string> command_;
  int begun_ = 0;         ///< times that the command was started
  double begun_at_ = 0;
  HostIdentity host_;  ///< that this process is on
  std::size_t wanted_;
  int listening_ = -1;
  pid_t launcher_ = -1;
  std::vector<std::unique_ptr<LineSocket>> unknown_;  ///< connected, and have not said who they are
  std::vector<Agent> agents_;
  std::vector<RankStart> waiting_;  ///< until all agents are there
  std::map<std::string, Going> going_;
  bool told_ready_ = false;
};

/// srun's words for the agents of the allocation that `environment` is in; `nodes`: how many there are.
std::vector<std::string> agents_by_srun(int nodes);

/// Nodes of the job that `environment` is in; 0: in none.
int nodes_of_job(const std::map<std::string, std::string>& environment);

}  // namespace lockstep
