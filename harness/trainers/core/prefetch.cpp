#include "harness/trainers/core/prefetch.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <chrono>
#include <stdexcept>
#include <utility>

namespace lockstep {

Prefetcher::Prefetcher(const Options& options, std::function<PartitionedRows(int64_t step)> partition)
    : options_(options), partition_(std::move(partition)), thread_([this] { work(); }) {}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetcher::work() {
  try {
    at::set_num_threads(1);  // of this thread: the rank's own setting does not reach it
    const c10::NoGradGuard no_grad;
    for (int64_t step = 0; step < options_.end; ++step) {
      PartitionedRows rows = partition_(step);
      std::unique_lock lock(mutex_);
      ready_.push_back(std::move(rows));
      changed_.notify_all();
      changed_.wait(lock, [this] { return stop_ || static_cast<int64_t>(ready_.size()) < options_.ahead; });
      if (stop_) {
        return;
      }
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

PartitionedRows Prefetcher::next() {
  std::unique_lock lock(mutex_);
  const int64_t step = given_++;
  if (step >= options_.end) {
    throw std::runtime_error(c10::str("rows of step ", step, " were asked for; the run has ", options_.end));
  }
  const bool in_time = changed_.wait_for(lock, std::chrono::duration<double>(options_.timeout_s),
                                         [this] { return !ready_.empty() || error_ != nullptr; });
  if (!in_time) {
    throw std::runtime_error(
        c10::str("the rows of step ", step, " were not ready within ", options_.timeout_s, " s"));
  }
  if (ready_.empty()) {
    std::rethrow_exception(error_);
  }
  PartitionedRows rows = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return rows;
}

}  // namespace lockstep
