#include "harness/cli/background.h"

#include <fmt/format.h>

#include <iostream>
#include <ostream>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/cli/guarded.h"
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

int run_detached(const std::string& out_dir, Session session, const Console& console, const std::function<int(const Console& plain)>& work) {
  console.out << std::flush;
  console.err << std::flush;
  const Session noted = detach(out_dir, std::move(session), [&] {
    const Console plain{console.out, console.err};
    const int code = guarded([&] { return work(plain); }, plain);
    plain.out << std::flush;
    plain.err << std::flush;
    return code;
  });
  console.out << fmt::format("running in process {}; lockstep status {} · lockstep wait {}\n", noted.process, clean_line(out_dir), clean_line(out_dir));
  return kExitAsExpected;
}

}  // namespace lockstep
