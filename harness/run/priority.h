#pragma once
// Whoever watches must have a core when it wakes: on a busy machine its own delay would be added to every alarm.

namespace lockstep {

/// Puts the calling thread before ordinary ones while the object lives (nice -10), where the system allows it; else does nothing.
/// Processes that the thread forks meanwhile inherit it, and give it up by be_ordinary() before they become anything else.
class Urgent {
 public:
  Urgent();
  ~Urgent();
  Urgent(const Urgent&) = delete;
  Urgent& operator=(const Urgent&) = delete;
  /// For a child that was forked by this thread, whether or not there is such an object: the niceness from before. Safe between fork and exec.
  static void be_ordinary();

 private:
  bool raised_ = false;
};

}  // namespace lockstep
