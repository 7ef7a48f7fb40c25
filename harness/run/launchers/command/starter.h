#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace lockstep
