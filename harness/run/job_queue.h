#pragma once
// Which run starts next, so that the whole ends early by the estimates: small runs go into the gaps.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "harness/run/job_order.h"
#include "harness/run/ready_jobs.h"

namespace lockstep {

struct Job {
  std::string id;
  std::vector<std::string> needs;  ///< ids of jobs that must have finished; ids of no job count as finished
  double estimate_s = 0;
  int slots = 1;           ///< taken while it runs; more than there are counts as all of them
  bool exclusive = false;  ///< runs while nothing else does
};

/// Only decides; starts nothing.
class JobQueue {
 public:
  JobQueue(std::vector<Job> jobs, int slots);

  /// The index of the job to start now, which then counts as running; nothing if none can start now.
  std::optional<std::size_t> next();
  void finished(std::size_t job);
  /// A job that was running waits once more.
  void again(std::size_t job);
  /// Returns the jobs that needed it, directly or through others, and will never start.
  std::vector<std::size_t> failed(std::size_t job);
  /// Starts nothing more.
  void stop() { stopped_ = true; }

  bool done() const;  ///< nothing runs and nothing will
  int running() const { return running_; }
  const Job& job(std::size_t i) const { return jobs_[i]; }
  int slots_of(std::size_t i) const { return shapes_[i].slots; }

 private:
  enum class State { waiting, running, finished, failed };
  void leave(std::size_t job, State state);

  std::vector<Job> jobs_;
  std::vector<JobShape> shapes_;
  std::vector<std::size_t> open_needs_;  ///< how many needs have not finished
  std::vector<State> states_;
  std::optional<ReadyJobs> ready_;
  int slots_, free_slots_;
  std::size_t waiting_;
  int running_ = 0;
  bool stopped_ = false;
};

}  // namespace lockstep
