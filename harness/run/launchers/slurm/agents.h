#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/run/job_queue.h"
#include "harness/run/launchers/launcher.h"
#include "harness/run/launchers/local/protocol.h"

// What an agent says of itself when it has connected.

namespace lockstep {

struct AgentHello : HostIdentity {
  std::string key;      ///< that only agents of this start know
  std::string node;     ///< Slurm's name of the node, else the host's
  std::string build, isa;
  int pid = 0;
  int slots = 1;        ///< processors that the job has there

  template <class Self, class Visit>
  static void members(Self& self, Visit visit) {
    HostIdentity::members(self, visit);
    visit("key", self.key);
    visit("node", self.node);
    visit("build", self.build);
    visit("isa", self.isa);
    visit("pid", self.pid);
    visit("slots", self.slots);
  }
};

/// One line, ended by a newline, and back. The latter throws ConfigError.
std::string to_line(const AgentHello& hello);

/// The key in a file of AgentLauncher's; empty: there is none, or it cannot be read.
std::string key_in_file(const std::string& path);

/// Of this process, by its environment.
AgentHello introduce_agent(const std::string& key);

// One allocation, many runs: an agent on each node that has LibTorch loaded and forks ranks, commanded over TCP. So a
// cell costs forks, and no step of the scheduler's.

class AgentLauncher : public GatheringLauncher {
 public:
  /// `command` starts `agents` processes of `rank_program` --agent PLACE FILE, one on each node: words with {rank_program}, {place} and {key} (the file
  /// that holds the key, for this user alone: FOLDER/agents.key; in element N of an array
  /// agents-N.key) in them. Its output goes to FOLDER/agents.log, agents-N.log. `reach`: where they are. Throws MachineError.
  AgentLauncher(const std::string& rank_program, std::vector<std::string> command, int agents, const std::string& folder, Reach reach = Reach::all_hosts);
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
    /// A rank that it holds, and that has not ended; nothing: no such one.
    std::optional<std::size_t> going(int rank) const;
  };
  struct Going {
    RankStart what;
    std::vector<Part> parts;
    std::vector<int> pids;
    std::vector<std::string> places;
  };

  void send_to_parts(const ParentCommand& command);
  void hear(std::size_t agent);
  /// False: it is nonsense.
  bool take(std::size_t agent, LauncherEvent event);
  void lose(std::size_t agent, const std::string& why);
  std::string held(std::size_t agent) const;
  void share(std::size_t from, const LauncherEvent& heartbeat);
  ParentCommand command_for(const RankStart& what, const Part& part, bool one_host) const;
  void look_at_launcher();
  void welcome(Door::Guest guest);
  std::vector<Part> placed(int processes) const;
  bool complete() const { return agents_.size() == wanted_; }
  void end_launcher(double deadline_s);

  void begin();
  void begin_again();

  std::string log_, key_file_;
  std::vector<std::string> command_;
  int begun_ = 0;         ///< times that the command was started
  double begun_at_ = 0;
  HostIdentity host_;  ///< that this process is on
  std::size_t wanted_;
  Door door_;
  pid_t launcher_ = -1;
  std::vector<Agent> agents_;
  std::vector<RankStart> waiting_;  ///< until all agents are there
  std::map<std::string, Going> going_;
  bool told_ready_ = false;
};

/// Is the job that `environment` is in one node, and this that node?
bool is_whole_job(const std::map<std::string, std::string>& environment);

/// srun's words for the agents of the allocation that `environment` is in; `nodes`: how many there are.
std::vector<std::string> agents_by_srun(int nodes);

/// Nodes of the job that `environment` is in; 0: in none.
int nodes_of_job(const std::map<std::string, std::string>& environment);

}  // namespace lockstep
