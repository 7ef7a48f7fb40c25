#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/plan/matrix/plan.h"

// A matrix that runs while nobody waits for it: detached on this machine, or as a Slurm job. OUT/session.json says who
// runs it, and afterwards how it ended.

namespace lockstep {

struct Session {
  std::string command;   ///< what runs
  std::string host;
  int process = 0;       ///< that runs it on that host; 0: a job does
  std::string job;       ///< of Slurm; empty: none
  std::vector<std::string> arrays = {};  ///< of Slurm, which come before it
  int runs = 0;          ///< that are planned, of a matrix
  std::optional<int> exit_code;  ///< once it has ended
  bool of_trials = false;  ///< of a suite: OUT/trials.jsonl tells how many have run
  bool foreground = false; ///< somebody waits for the process; its output is not in OUT
  uint64_t space = 0, started = 0;  ///< of the process, as ProcessId has them; 0: not noted
  void be_this_process();
};

std::string session_file(const std::string& out_dir);
/// Throws MachineError.
void write_session(const std::string& out_dir, const Session& session);
/// Of a folder without one, what its results.json says. Throws ConfigError if there is neither.
Session read_session(const std::string& out_dir);

/// Forks. In the child, which has a session of its own, its output in OUT/run.out and OUT/run.err: runs `work` and notes
/// what it returned, then ends the process. In the parent: returns once the child is noted.
Session detach(const std::string& out_dir, Session session, const std::function<int()>& work);

/// Does `work` in this process, which holds OUT, and notes who does it and what it returned; not where a detached process or a job that
/// lockstep submitted does, which has a session already. Of work that throws no exit status is noted.
int in_foreground(const std::string& out_dir, Session session, const std::function<int()>& work);

/// The batch script of a job that runs `command` in this folder: it hands SIGTERM and SIGUSR1 on, notes the exit status, and
/// queues itself again when lockstep was told to end.
std::string job_script(const std::string& command, const std::string& out_dir, const std::string& name,
                       const std::vector<std::string>& options);

/// Writes the script to `path` and submits it, to start when job `after` has ended, if there is one. Returns the job's number.
/// Throws ConfigError if Slurm refuses it or is not there.
std::string submit_script(const std::string& path, const std::string& script, const std::string& after = "");

/// Takes back what was submitted; says what became of it, to stand behind the message of why: "; the array 17 that had been submitted is
/// cancelled". Empty if there are none.
std::string cancel_jobs(const std::vector<std::string>& jobs);

/// The last job of a session: OUT/job.sh. Throws as above.
Session submit(const std::string& out_dir, Session session, const std::string& script);

/// A line of OUT/losses, with the time: a node that was lost, a run that was started again. `status` shows the last of them.
void note_loss(const std::string& out_dir, const std::string& what);

/// What is known of it now: "running", "pending", "ended", "lost" (its process or job is gone and left no status).
std::string state_of(const std::string& out_dir, const Session& session);

/// Waits for its end; returns its exit status, or nothing if it was lost. `give_up`: asked now and then.
std::optional<int> wait_for(const std::string& out_dir, const std::function<bool()>& give_up);

/// The last lines that a session whose run could not go on has written: why. They stand in OUT/job.log or OUT/run.err.
std::string last_words(const std::string& out_dir);

/// "running: process 17 on vm; 3 of 24 runs have finished".
std::string session_text(const std::string& out_dir);

// A matrix of long cells as job arrays of Slurm: one task a run, which the scheduler places, limits and queues again by itself.
// Runs that need others come in a later array; a last job gathers and judges what the tasks have left.

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

}  // namespace lockstep
