#pragma once
// OUT/declared.json: what a matrix declared (question, metric, margin, alpha, target, test) when each of its
// runs was first planned, so that nothing is said to be declared before the runs that was changed after them.

#include <functional>
#include <string>

#include "harness/base/files.h"
#include "harness/verdict/plan/plan.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

/// Notes for each of the plan's runs that has no record what is declared now; of a run whose folder lies there
/// already, that it is not known. Call it before the runs start. A record is never replaced, not even where the
/// run is done anew: its numbers were the same. Writes nothing if nothing is new. A file that cannot be
/// understood begins anew, and `say` (may be null) is told. Throws MachineError.
void note_declared(const Plan& plan, const std::string& out_dir,
                   const std::function<void(const std::string&)>& say = nullptr, Files& files = real_files());

/// Notes of the plan's runs that lie there without a record that it is not known. Call it before they are
/// removed. Throws MachineError.
void note_undeclared(const Plan& plan, const std::string& out_dir, Files& files = real_files());

/// What the record says of the plan's runs that outcomes are judged from, against what is declared now.
Declaration declaration_of(const Plan& plan, const std::string& out_dir);

}  // namespace lockstep
