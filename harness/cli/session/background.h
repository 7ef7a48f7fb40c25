#pragma once
// A matrix that runs while nobody waits for it: detached on this machine, or as a Slurm job. OUT/session.json says who
// runs it, and afterwards how it ended.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace lockstep
