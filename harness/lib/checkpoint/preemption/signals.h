#pragma once
// The signals by which a scheduler tells a run to end: SIGTERM, and SIGUSR1 where it warns some minutes before.

#include <csignal>
#include <cstdint>
#include <vector>

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

}  // namespace lockstep
