#pragma once
// The signals by which a scheduler tells a run to end: SIGTERM, and SIGUSR1 where it warns some minutes before.

#include <csignal>
#include <cstdint>
#include <sys/types.h>
#include <vector>

namespace lockstep {

/// Holds signals back on this thread, and on threads and processes that it starts, as long as it lives: between a fork
/// and the handlers of the new process no signal is lost, and none ends it.
class HeldSignals {
 public:
  explicit HeldSignals(const std::vector<int>& signals);
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

/// Takes the signals of this process as long as it lives: they end nothing and are remembered. One of them that was
/// held back comes when the handlers stand. At most one object in a process at a time.
class PreemptionSignals {
 public:
  explicit PreemptionSignals(std::vector<int> signals = {SIGTERM, SIGUSR1});
  ~PreemptionSignals();
  PreemptionSignals(const PreemptionSignals&) = delete;
  PreemptionSignals& operator=(const PreemptionSignals&) = delete;

  /// The first that came; 0: none has.
  int first() const;
  /// How many came.
  int64_t count() const;
  /// When the first one came, in seconds of monotonic_s; 0: none has.
  double first_at_s() const;

 private:
  std::vector<int> signals_;
  std::vector<struct sigaction> before_;
};

/// A launcher's part: hands each of the signals on to the processes that it has started. At most one object in a
/// process at a time.
class SignalRelay {
 public:
  static constexpr int kMost = 4096;  ///< processes

  explicit SignalRelay(std::vector<int> signals = {SIGTERM, SIGUSR1});
  ~SignalRelay();
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;

  /// From now on this process gets them, those that came before it as well. To be called for each before the first one
  /// is waited for, under HeldSignals from before its fork.
  void add(pid_t process);
  /// To be called when it is known to have ended and before it is waited for, so that its number is nobody else's.
  void remove(pid_t process);
  /// The first that came; 0: none has.
  int first() const;

 private:
  std::vector<int> signals_;
  std::vector<struct sigaction> before_;
};

}  // namespace lockstep
