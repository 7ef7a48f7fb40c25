#include <ostream>

#include "harness/base/files.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/cli/session/out_folder.h"
#include "harness/cli/session/prepare.h"
#include "harness/cli/session/texts.h"
#include "harness/cli/suite.h"
#include "harness/run/run_folder.h"
#include "harness/suites/engine/kinds.h"

namespace lockstep {

int plan_command(const PlanOptions& options, const Console& console) {
  const std::string text = read_config_text(options.selection.config);
  if (names_a_suite(text)) return plan_suite_command(text, options, console);
  const Prepared prepared = prepare(options.selection, text);
  if (prepared.nothing_selected()) {
    console.err << clean_text(nothing_selected_text(prepared, options.selection));
    return kExitNothing;
  }
  if (options.prepare) {
    const OutFolder folder(prepared.out_dir, prepared.plan.matrix);
    for (const PlannedRun& run : prepared.plan.runs) {
      if (run.reused) continue;
      const std::string dir = run_folder(prepared.out_dir, run.id);
      prepare_run_folder(dir, run, prepared.identity, prepared.data.hash_of(run.config));
      console.err << clean_line(dir) << "\n";
    }
  }
  const int jobs = options.selection.jobs;
  console.out << (options.json ? clean_json(plan_json(prepared.plan, jobs))
                               : clean_text(plan_text(prepared.plan, jobs) + command_notes(prepared)));
  const std::vector<std::string> lacking = lacking_here(prepared.plan);
  for (const std::string& line : lacking) console.err << clean_text(line) << "\n";
  return lacking.empty() ? kExitAsExpected : kExitUsage;
}

}  // namespace lockstep
