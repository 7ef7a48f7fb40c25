#include <iostream>
#include <ostream>

#include "harness/base/clean_text.h"
#include "harness/base/read_file.h"
#include "harness/cli/commands.h"
#include "harness/cli/session/background.h"
#include "harness/cli/stop_signals.h"

namespace lockstep {

int status_command(const StatusOptions& options, const Console& console) {
  console.out << clean_text(session_text(options.dir));
  return kExitAsExpected;
}

int wait_command(const WaitOptions& options, const Console& console) {
  const StopSignals signals;
  const std::optional<int> code = wait_for(options.dir, [] { return *StopSignals::requested() != 0; });
  if (*StopSignals::requested() != 0) {
    console.err << "stopped waiting; the run continues\n";
    return kExitInterrupted;
  }
  const Session session = read_session(options.dir);
  if (session.foreground || (session.process == 0 && session.job.empty()))
    console.out << clean_text(session_text(options.dir));  // what it printed was for whoever started it
  else if (const FileText said = read_file(options.dir + "/run.out"))
    console.out << clean_text(said.text);
  if (code == kExitMachine) console.err << clean_text(last_words(options.dir));
  if (code) return *code;
  if (!session.foreground) console.err << clean_text(session_text(options.dir));
  return kExitMachine;
}

}  // namespace lockstep
