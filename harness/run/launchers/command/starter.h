#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/plan/config/trainer_spec.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/launchers/launcher.h"

// One Python process that has imported what a trainer imports, and forks the processes of its runs (probe/python/lockstep_probe/starter.py): to start
// Python and to import take most of a short run's time.

namespace lockstep {

/// The words of a shell command that is nothing but words and quotation marks; none where a shell would do more with it.
std::vector<std::string> plain_words(const std::string& shell);

/// Takes `env` and "NAME=value" in front of a command away; the latter are returned.
std::vector<std::string> take_assignments(std::vector<std::string>& words);

/// The Python that the words start: themselves, or what the first line of the script that they name says. Empty: another program.
std::string python_of(const std::vector<std::string>& words);

/// The first of the words that is a file of Python's with an own name for it: "train.py"; empty: none.
std::string script_of(const std::vector<std::string>& words, const std::string& folder);

class Starter {
 public:
  /// What it prints goes to the file `log`. Throws MachineError.
  Starter(const std::string& python, const std::string& probe, const std::string& log);
  ~Starter();
  Starter(const Starter&) = delete;
  Starter& operator=(const Starter&) = delete;

  /// Imports what the script at that path imports, beside `modules`; empty: no script. Returns seconds.
  double import(const std::vector<std::string>& modules, const std::string& script);
  /// Modules that runs imported and this process has not.
  std::vector<std::string> modules();
  /// The process that does what the words would; nothing, and `why`, where it cannot be forked.
  std::optional<pid_t> start(const std::vector<std::string>& words, const ProgramStart& what, std::string& why);
  /// A process of its own that has ended: as waitpid tells it. Nothing: it goes on.
  std::optional<int> ended(pid_t process);
  std::string refused = {};  ///< why the last one that was not forked was not
  bool owns(pid_t process) const { return going_.contains(process); }

 private:
  void send(const std::string& line);
  /// The next answer with that key; what else is said meanwhile is kept. An empty text: it has ended.
  std::string answer(const std::string& key, double within_s);
  void take_line(const std::string& line);
  bool read_more(double wait_s);

  pid_t process_ = -1;
  int to_ = -1, from_ = -1;
  std::string unread_;
  int number_ = 0;
  std::map<pid_t, std::optional<int>> going_;
  std::map<std::string, pid_t> by_name_;
  std::vector<std::string> answers_;
  std::string log_;
};

// Processes of a run's command, here and on other nodes.

inline constexpr const char* kShell = "/bin/sh";
/// For what started a rank to notice that it is gone, and to say how it ended.
inline constexpr double kLauncherNotices_s = 5;

/// The command in place of its shell, or in front of one that passes on that it shall end: what ends the shell alone
/// would leave it behind.
std::string followed(const std::string& command);

/// This process's environment with these variables, and without others that say of a process which rank it is; where
/// ranks meet a job's script may say.
std::vector<std::string> environment_for(const std::vector<std::pair<std::string, std::string>>& variables);

/// Kills the processes of a run, whatever session they are in: each has the run's heartbeat file in its environment,
/// and that name is the same file for it. In a container of somebody else's it is another one.
void kill_processes_of_run(const std::string& heartbeat);

/// What a command that starts its ranks itself has printed, up to where torchrun reports on them.
std::string excerpt_of(const std::string& log);

/// Of an object: what is not there, or of another type, is empty, and -1.
std::string text_in(const nlohmann::json& json, const char* key);
int number_in(const nlohmann::json& json, const char* key);

/// One process on each of several nodes, in a folder that all see: node 0 leads, and the others start what it starts.
class CommandNodes {
 public:
  /// Waits for the others. Throws RendezvousError, MachineError.
  CommandNodes(std::string folder, const RankEnvironment& node, double within_s);
  /// Of node 0: the others end, with `status`.
  ~CommandNodes();
  CommandNodes(const CommandNodes&) = delete;
  CommandNodes& operator=(const CommandNodes&) = delete;

  int count() const { return mine_.world; }
  /// Of node 0: the others start it, too, with torchrun's variables added to these.
  void start(const std::string& run_dir, const std::string& heartbeat, const CommandLine& line,
             std::vector<std::pair<std::string, std::string>>& variables);
  /// Why another node's part of it has failed; empty: none has.
  std::string failed() const;
  /// Returns when the parts of the others have ended; those that have not in `grace_s` are ended.
  void over(double grace_s);
  /// Of the others: starts what node 0 starts until that has ended; the exit status. Throws MachineError: it is gone.
  int follow();
  int status = 7;

 private:
  std::string lock_file(int node) const { return folder_ + "/lock-" + std::to_string(node); }
  bool is_gone(int node) const;
  void write(const std::string& name, nlohmann::json object) const;
  nlohmann::json read(const std::string& name) const;

  std::string folder_, start_;
  Arrival mine_;
  int lock_ = -1;  ///< this node's: held as long as it lives
  nlohmann::json part_ = {{"number", 0}};
};

}  // namespace lockstep
