#pragma once
// What `run` says about itself and about runs that failed.

#include <string>

#include "harness/cli/session/prepare.h"
#include "harness/cli/session/progress.h"
#include "harness/run/launch.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

/// A line for each finished run whose files are no longer what it left, and which therefore runs again; empty
/// if there is none. Without the last line's end.
std::string damage_text(const Plan& plan);

/// Of a matrix whose runs are a command: what decides whether they are reused, and what can be judged with what finished runs recorded. Else empty.
std::string command_notes(const Prepared& prepared);

/// Printed before anything runs: seeds, build, the resolved config's hash, what there is to do.
std::string opening_text(const Prepared& prepared, int jobs);

/// "0..9" or "0, 2, 5".
std::string seeds_text(const std::vector<int64_t>& seeds);

/// What failed, where, its last words, where its files lie and the command that repeats it.
std::string failure_block(const RankFailure& failure, const std::string& out_dir, const std::string& rerun);

/// Blocks of the runs that failed by themselves; those that only needed one of them are counted.
std::string failure_blocks(const LaunchReport& report, const std::string& out_dir, const Results& results,
                           const std::string& command);

/// Results on the console, as a table or as JSON, and in GitHub's summary of the step where there is one; `problems`: with what was to be written.
void print_results(const Results& results, const std::vector<std::string>& problems, const std::string& out_dir, bool json, const Console& console);

/// The launcher's failures as the judge takes them.
std::map<std::string, Failure> failures_by_run(const LaunchReport& report);

}  // namespace lockstep
