#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/matrix/matrix.h"

// Checks planted faults: those that name what their run does not have, and those that never acted in it.

namespace lockstep {

/// What is wrong with the faults that a run plants: a bug of another trainer, a rank, a step or a parameter
/// that it does not have, or a setting that changes nothing. (key, message) each.
std::vector<std::pair<std::string, std::string>> fault_problems(const RunConfig& config);

/// Of a fault under `key` ("mutant") that changed nothing in its run: what that means, and what to do.
std::string idle_fault_words(const MutantConfig& mutant, const std::string& key, const RunConfig& config);

// Combinations of one run's own fields that cannot be trained, or that would change nothing.

/// What is wrong with the learning-rate rule, the precision and the perturbation of a run in a matrix of that
/// question: (key, message) each.
std::vector<std::pair<std::string, std::string>> training_problems(const RunConfig& config,
                                                                   const QuestionPlan& asks);

// What the key `launcher` and the option --launcher say: who starts the ranks.

/// "local"; "slurm" with options of sbatch behind it; one of the named launchers, with options of its own behind it;
/// "external:" and a command with {ranks}, {rank_program} and {run} in it.
struct LauncherChoice {
  enum class Kind { local, slurm, external } kind = Kind::local;
  std::string name = "local";
  std::vector<std::string> words;  ///< external: the command; slurm: options of sbatch
};

struct NamedLauncher {
  std::string_view name;
  std::string_view command;  ///< {options} stands for what the user adds
  std::string_view install;  ///< what to do where its program is missing
};

/// torchrun, openmpi, mpich, srun: for one host, but srun, which goes where its job is.
const std::vector<NamedLauncher>& named_launchers();

/// What is wrong with the text; empty if nothing is. `suggestion`: the nearest word.
std::string launcher_problem(std::string_view text, std::string& suggestion);

/// Of a text without a problem.
LauncherChoice launcher_choice(std::string_view text);

/// Notes what --launcher says (`chosen`; empty: nothing), and reports what is wrong with it or with the key.
void take_launcher(MatrixSource& source, const std::string& chosen, Problems& problems);

/// Words of a command line: split at blanks, but not inside '…' or "…". False if a quote is left open.
bool split_words(std::string_view text, std::vector<std::string>& words);

}  // namespace lockstep
