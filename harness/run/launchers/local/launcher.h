#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "harness/run/launchers/launcher.h"
#include "harness/run/launchers/local/protocol.h"

// Ranks on this machine, forked by a rank parent that has loaded LibTorch: a child process at the other end of a socket.

namespace lockstep {

class LocalLauncher : public Launcher {
 public:
  /// Starts `program` in its own session, so that Ctrl-C reaches lockstep alone; it dies with the thread that
  /// made it. Does not wait for it to have loaded. Throws MachineError.
  explicit LocalLauncher(const std::string& program);
  ~LocalLauncher() override;
  LocalLauncher(const LocalLauncher&) = delete;
  LocalLauncher& operator=(const LocalLauncher&) = delete;

  void start(const RankStart& what) override;
  void stop(const std::string& run, int signal) override;
  void tell(const std::string& run, const std::string& why) override;
  std::vector<LauncherEvent> poll(double wait_s) override;
  /// Asks the parent to kill and reap all ranks and to exit. After `deadline_s` kills the parent; the kernel
  /// then kills its ranks.
  void shut_down(double deadline_s) override;

 private:
  void send(const ParentCommand& command);
  [[noreturn]] void gone();
  int reap();

  std::string program_;
  std::unique_ptr<LineSocket> socket_;
  pid_t pid_ = -1;
};

// Standard input, output and error, and signals, as every process of ours may rely on them.

/// Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed: else the next file that is opened
/// gets its number, and what is printed lands in that file. To be called before anything is opened. A file that grows beyond the limit of
/// `ulimit -f` is an error of its write from here on, and ends no process.
void open_standard_streams();

}  // namespace lockstep
