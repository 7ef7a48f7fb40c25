#pragma once
// Which run starts next: what others wait for and what takes longest first, small ones into the gaps.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct Job {
  std::string id;
  std::vector<std::string> needs;  ///< ids of jobs that must have finished; ids of no job count as finished
  double estimate_s = 0;
  int slots = 1;  ///< taken while it runs; more than there are counts as all of them
};

/// Decides alone; starts nothing. A job's rank in the queue is the time from its start to the end of all that
/// waits for it.
class JobQueue {
 public:
  JobQueue(std::vector<Job> jobs, int slots);

  /// The index of the job to start now, which then counts as running; nothing if none can start now.
  std::optional<std::size_t> next();
  void finished(std::size_t job);
  /// Returns the jobs that needed it, directly or through others, and will never start.
  std::vector<std::size_t> failed(std::size_t job);
  /// Starts nothing more.
  void stop() { stopped_ = true; }

  bool done() const;  ///< nothing runs and nothing will
  int running() const { return running_; }
  const Job& job(std::size_t i) const { return jobs_[i]; }
  int slots_of(std::size_t i) const;

 private:
  enum class State { waiting, running, finished, failed };
  double weight_of(std::size_t i, std::vector<double>& known) const;

  std::vector<Job> jobs_;
  std::vector<std::vector<std::size_t>> needed_by_;
  std::vector<std::size_t> open_needs_;  ///< how many needs have not finished
  std::vector<State> states_;
  std::vector<std::size_t> order_;  ///< waiting jobs, heaviest first
  int slots_, free_slots_;
  int running_ = 0;
  bool stopped_ = false;
};

}  // namespace lockstep
