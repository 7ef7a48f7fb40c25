#pragma once

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/group.h"

// The signals by which a scheduler tells a run to end: SIGTERM, and SIGUSR1 where it warns some minutes before.

namespace lockstep {

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

// Ends a run in order when it is told to: all ranks after the same step, saved, with the exit code that the scheduler
// waits for.
//
//   PreemptionSignals signals;                          // once in each process, before the first step
//   Preemption preemption(signals, {.grace_s = 30});    // one for each rank
//   for (...) {
//     step();                                           // with its evaluation and its checkpoint
//     if (preemption.agree(group, 60, problem)) break;  // the same answer on every rank
//   }
//   if (preemption.agreed() != 0) { save within preemption.left_s(); return preemption.exit_code(); }
//
// A rank never stops because of its own signal alone: it tells it, and stops when all have heard. So it does not matter
// which ranks get the signal, when, how often, or whether they are in a step, an evaluation, a save, or not yet in
// their first step.

struct PreemptionOptions {
  double grace_s = 30;  ///< from the first signal until the run must have ended
  int exit_code = 0;    ///< 0: 128 + the signal, as a shell tells a process that a signal ended
};

/// One rank's knowledge of whether the run is to end.
class Preemption {
 public:
  Preemption(const PreemptionSignals& signals, PreemptionOptions options) : signals_(signals), options_(options) {}

  /// What this rank tells the others: the first signal that its process got, or 0. For runs that put it into a
  /// collective of their own, whose greatest value over all ranks goes to `heard`.
  int tells() const { return signals_.first(); }
  /// Takes what all ranks told together. True: the run ends after this step, on every rank.
  bool heard(int greatest_of_all);
  /// Both, over a group. A collective: all ranks call it after each step. Sets `problem` if a rank is gone; then
  /// nothing is agreed.
  bool agree(checkpoint::Group& group, double deadline_s, std::string& problem);

  /// The signal for which all ranks end, the greatest where they got different ones; 0: nothing is agreed.
  int agreed() const { return agreed_; }
  /// What is left of the grace, at least 0; all of it, if no signal has come and nothing is agreed. A rank that got no
  /// signal itself counts from when it heard.
  double left_s() const;
  /// With which the process ends after its last save. 0 as long as nothing is agreed.
  int exit_code() const;

 private:
  const PreemptionSignals& signals_;
  PreemptionOptions options_;
  int agreed_ = 0;
  double heard_at_s_ = 0;
};

}  // namespace lockstep
