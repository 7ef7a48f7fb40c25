#pragma once
// What `compare` prints and how it ends.

#include <string>
#include <vector>

#include "harness/cli/options.h"
#include "harness/evidence/same_question.h"
#include "harness/results/results.h"
#include "harness/session/console.h"

namespace lockstep {

std::string comparison_text(const Mechanism& mechanism);
/// `across`: settings that differ between the runs and ask another question; `--across` shows them.
std::string comparison_json(const Mechanism& mechanism, const std::string& run_a, const std::string& run_b,
                            const std::vector<QuestionDifference>& across = {});

/// `expected`: names of verdicts that are fine; empty: identical, within_envelope and equivalent.
int comparison_exit_code(VerdictKind verdict, const std::vector<std::string>& expected);

/// What the command line gives in place of what matrices declare.
Given given_of(const CompareCommandOptions& options);

/// The rules other than bits. `expected`: verdicts to exit 0 for. Return the exit code.
int compare_outcomes_command(const CompareCommandOptions& options, const std::vector<std::string>& expected,
                             const Console& console);
int compare_mlperf_command(const CompareCommandOptions& options, const Console& console);

}  // namespace lockstep
