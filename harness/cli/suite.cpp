#include "harness/cli/suite.h"

#include <fmt/format.h>

#include <ostream>

#include "harness/base/errors.h"
#include "harness/base/text.h"
#include "harness/cli/background.h"
#include "harness/cli/commands.h"
#include "harness/cli/session/background.h"
#include "harness/cli/session/out_folder.h"
#include "harness/cli/session/suites.h"
#include "harness/cli/session/texts.h"
#include "harness/cli/stop_signals.h"
#include "harness/run/host.h"

namespace lockstep {
namespace {

void print_plan(const PreparedSuite& prepared, bool json, const Console& console) {
  console.out << (json ? clean_json(suite_plan_json(prepared)) : clean_text(suite_plan_text(prepared)));
}

}  // namespace

int plan_suite_command(const std::string& text, const PlanOptions& options, const Console& console) {
  if (options.prepare) throw ConfigError("--prepare: a suite creates runs when its trials need them; remove it");
  print_plan(prepare_suite(text, options.selection), options.json, console);
  return kExitAsExpected;
}

namespace {

int run_and_report(PreparedSuite& prepared, const RunOptions& options, const Console& console) {
  console.err << clean_text(suite_plan_text(prepared)) << std::flush;
  const StopSignals signals;
  const SuiteOutcome outcome =
      run_suite(prepared, options.selection, options.fresh, console, StopSignals::requested());
  if (outcome.interrupted) {
    console.err << fmt::format("interrupted: {} of {} trials have run; run again to resume:\n  {}\n", outcome.done, outcome.all,
                               clean_line(command_text(options.selection)));
    return kExitInterrupted;
  }
  const Results& results = outcome.results;
  if (results.summary.exit_code == kExitNothing) {
    console.err << "no trial is selected by --only " << clean_line(shell_quoted(options.selection.only))
                << "; results.json has the trials' names, its table those of failures\n";
    return kExitNothing;
  }
  print_results(results, outcome.problems, prepared.out_dir, options.json, console);
  return outcome.problems.empty() ? results.summary.exit_code : kExitMachine;
}

Session session_of(const RunOptions& options) {
  Session session;
  session.command = command_text(options.selection);
  session.of_trials = true;
  return session;
}

int run_prepared(PreparedSuite& prepared, const RunOptions& options, const Console& console) {
  make_suite_out(prepared);
  return in_foreground(prepared.out_dir, session_of(options), [&] { return run_and_report(prepared, options, console); });
}

}  // namespace

int run_suite_command(const std::string& text, const RunOptions& options, const Console& console) {
  PreparedSuite prepared = prepare_suite(text, options.selection);
  if (!options.part.empty()) throw ConfigError("--part: a suite is not an array of Slurm jobs; remove it");
  if (options.dry_run) {
    print_plan(prepared, options.json, console);
    return kExitAsExpected;
  }
  require_surroundings();
  if (!options.detach) return run_prepared(prepared, options, console);
  make_suite_out(prepared);  // refused before it is forked
  return run_detached(prepared.out_dir, session_of(options), console,
                      [&](const Console& plain) { return run_prepared(prepared, options, plain); });
}

}  // namespace lockstep
