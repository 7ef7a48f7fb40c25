#include <ostream>

#include "harness/base/clean_text.h"
#include "harness/cli/commands.h"
#include "harness/session/prepare.h"

namespace lockstep {

int plan_command(const PlanOptions& options, const Console& console) {
  const Prepared prepared = prepare(options.selection);
  if (prepared.nothing_selected()) {
    console.err << clean_text(nothing_selected_text(prepared, options.selection));
    return kExitNothing;
  }
  const int jobs = options.selection.jobs;
  console.out << (options.json ? clean_json(plan_json(prepared.plan, jobs))
                               : clean_text(plan_text(prepared.plan, jobs)));
  return kExitAsExpected;
}

}  // namespace lockstep
