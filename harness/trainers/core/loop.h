#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "harness/judge/trace/rank_result.h"
#include "harness/trainers/core/checkpoints.h"
#include "harness/trainers/core/task.h"

// The training loop of one rank, and the forced loop that computes gradients at another run's parameters.

namespace lockstep {

/// Trains config->steps steps (or stop_after). Fills curves, metrics and timing of `result`. `resume_trace`: rank 0's trace of
/// the run that it goes on from, which holds a snapshot of config->resume_step; empty: it begins. `setup`: what its checkpoints
/// stand on; null: it has none. Returns 0, or the exit code of a run that a signal stopped after an agreed step.
int train(const RankContext& context, RankResult& result, const std::string& resume_trace = {},
          const CheckpointSetup* setup = nullptr);

/// At each of config->forced.steps: loads the snapshot of `trace_path` (rank 0's trace of the run that
/// training came from), computes and reduces the gradients there, updates, and keeps all of it whole; in one
/// process the sizes of the gradients' terms too. `choosing_path`: this
/// rank's trace of the run whose scores decide which candidates a row takes; empty: its own do. Throws
/// std::runtime_error if a snapshot is missing, or such scores.
void compute_forced(const RankContext& context, const std::string& trace_path, const std::string& choosing_path,
                    RankResult& result);

// Scores of another run by which a loss that takes some of a row's candidates chooses them.

/// By step, of each micro-step [rows, columns] in float64: the scores of that name that a rank's trace kept whole. Throws
/// std::runtime_error naming a step of which it holds none.
std::map<int64_t, std::vector<at::Tensor>> read_choosing(const std::string& trace_path, const std::vector<int64_t>& steps,
                                                         std::string_view scores);

// Rows made ready by a thread while the steps before theirs are trained.

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
