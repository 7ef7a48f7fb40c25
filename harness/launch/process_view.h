#pragma once
// What the watch asks of a rank's process: what its threads had of a core since a moment, and what it does now.

#include <functional>
#include <memory>

#include "harness/launch/process_state.h"

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
    double uncounted_s = 0, all_uncounted_s = 0;  ///< of threads that are ready now: what they may have waited or slept
  };
  /// Of a process that is gone: zeros. The kernel counts a wait when it is over.
  virtual Since since(double now) = 0;
  virtual ProcessState state() = 0;
};

using ProcessViewer = std::function<std::unique_ptr<ProcessView>(int pid)>;
/// By the files under /proc/PID/task, which stay open: a mark costs a few microseconds.
std::unique_ptr<ProcessView> live_view(int pid);

}  // namespace lockstep
