#pragma once
// A waiting thread that is woken at regular times, so that it can look at the clock: a wait for ptrace's stops has no
// time limit of its own.

#include <ctime>

namespace lockstep::program {

/// As long as it lives, blocking calls of the thread that made it end with EINTR every few hundredths of a second.
class WakeUp {
 public:
  WakeUp();
  ~WakeUp();
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

 private:
  timer_t timer_{};
};

}  // namespace lockstep::program
