#pragma once
// Rows made ready by a thread while the steps before theirs are trained.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "harness/trainers/core/task.h"

namespace lockstep {

/// One rank's rows at a step, as they were partitioned, and what its trainer has made ready of them.
struct PartitionedRows {
  std::vector<int64_t> ids;
  std::shared_ptr<const PreparedRows> prepared;
};

/// Gives steps 0, 1, 2, … in order, each as `partition` makes it, at most `ahead` of them before they are asked
/// for.
class Prefetcher {
 public:
  struct Options {
    int64_t ahead = 1;      ///< steps, >= 1
    int64_t end = 0;        ///< steps in all
    double timeout_s = 60;  ///< longest wait for one step
  };
  /// `partition` is called in one thread of its own.
  Prefetcher(const Options& options, std::function<PartitionedRows(int64_t step)> partition);
  /// Waits for the call of `partition` that is going, if one is; what is ready and was not asked for is dropped.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next step's rows. Throws what `partition` threw for them, and std::runtime_error naming the step after
  /// the timeout.
  PartitionedRows next();

 private:
  void work();

  const Options options_;
  const std::function<PartitionedRows(int64_t)> partition_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PartitionedRows> ready_;
  std::exception_ptr error_;  ///< of the step after those that are ready
  int64_t given_ = 0;         ///< steps that were asked for
  bool stop_ = false;
  std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace lockstep
