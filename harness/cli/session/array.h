#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/verdict/plan/plan.h"

// A matrix of long cells as job arrays of Slurm: one task a run, which the scheduler places, limits and queues again by itself.
// Runs that need others come in a later array; a last job gathers and judges what the tasks have left.

namespace lockstep {

/// What the option --array of `launcher: slurm` says: "--array", "--array=%4" (four tasks at once).
struct ArrayWish {
  bool wanted = false;
  int at_once = 0;                   ///< 0: as the cluster says
  std::vector<std::string> options;  ///< the others, for sbatch
};
/// Throws ConfigError: tasks are numbered by lockstep.
ArrayWish array_wish(const std::vector<std::string>& options);

/// By array, by task: ids of runs. Those of a plan that are to be done, each after what it needs; a task has several runs
/// where there are more runs than `most_tasks`.
using ArrayParts = std::vector<std::vector<std::vector<std::string>>>;
ArrayParts array_parts(const Plan& plan, std::size_t most_tasks);

/// OUT/parts.json. Both throw MachineError; reading one throws ConfigError for a part ("1.3": array 1, task 3) that is not there.
void write_parts(const std::string& out_dir, const ArrayParts& parts);
std::vector<std::string> read_part(const std::string& out_dir, const std::string& part);

/// The runs of the part, each with all that it needs finished. `left_out` gets the ids of the others, which a failure made impossible.
Plan plan_of_part(const Plan& plan, const std::vector<std::string>& ids, std::vector<std::string>& left_out);

/// The batch script of one array of `tasks`: each runs `command` --part `array`.TASK, ends in order when it is told to, and queues
/// itself again when it was warned.
std::string array_script(const std::string& command, const std::string& out_dir, const std::string& name, std::size_t array, std::size_t tasks,
                         const ArrayWish& wish);

// What all batch scripts for Slurm have in common.

/// Job name, output, requeuing, each of `options`, and the change into this folder. Output is appended to OUT/job.log. Throws ConfigError
/// where Slurm has no way to write what a name or path holds.
std::string batch_head(const std::string& out_dir, const std::string& name, const std::vector<std::string>& options);

/// Runs `command`, hands SIGTERM and SIGUSR1 on to it, waits for its end; then `$status` is its exit status.
std::string batch_command(const std::string& command);

}  // namespace lockstep
