#pragma once
// What the watch asks of a rank's process: what its threads had of a core since a moment, and what it does now.

#include <functional>
#include <memory>

#include "harness/run/process_state.h"

namespace lockstep {

class ProcessView {
 public:
  virtual ~ProcessView() = default;
  /// From here on times count.
  virtual void mark(double now) = 0;
  struct Since {
    double ran_s = 0;              ///< of a core that its first thread has had since the mark
    double without_core_s = 0;      ///< for which its first thread was ready and had none, as far as the kernel has counted
    double all_without_core_s = 0;  ///< the same of all its threads together: a rank in a collective waits for Gloo's
    double all_ran_s = 0;           ///< of cores that all its threads have had: a rank may compute in another than the first
    double uncounted_s = 0, all_uncounted_s = 0;  ///< of threads that are ready now: what they may have waited or slept
  };
  /// Of a process that is gone: zeros. The kernel counts a wait when it is over.
  virtual Since since(double now) = 0;
  virtual ProcessState state() = 0;
};

/// Of a process on another host: what was said of it last, by a view there that is marked when the rank is heard of.
class ToldView : public ProcessView {
 public:
  void mark(double) override { since_ = {}; }
  Since since(double) override { return since_; }
  ProcessState state() override { return state_; }
  void take(const ProcessState& state, const Since& since) {
    state_ = state;
    since_ = since;
  }

 private:
  ProcessState state_;
  Since since_;
};

using ProcessViewer = std::function<std::unique_ptr<ProcessView>(int pid)>;
/// By the files under /proc/PID/task, which stay open: a mark costs a few microseconds.
std::unique_ptr<ProcessView> live_view(int pid);

}  // namespace lockstep
