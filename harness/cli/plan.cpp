#include <ostream>

#include "harness/cli/commands.h"
#include "harness/cli/prepare.h"

namespace lockstep {

int plan_command(const PlanOptions& options, const Console& console) {
  const Prepared prepared = prepare(options.selection);
  if (prepared.nothing_selected()) {
    console.err << nothing_selected_text(options.selection, prepared);
    return kExitNothing;
  }
  const int jobs = options.selection.jobs;
  console.out << (options.json ? plan_json(prepared.plan, jobs) : plan_text(prepared.plan, jobs));
  return kExitAsExpected;
}

}  // namespace lockstep
