#pragma once
// Signals that end a command in order instead of at once.

#include <csignal>
#include <cstddef>

namespace lockstep {

/// Takes SIGINT, SIGTERM and SIGHUP as long as it lives; one of them that was ignored stays so.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// 0; 1 after the first signal; 2 after another.
  static const volatile int* requested();

 private:
  static constexpr std::size_t kCount = 3;
  struct sigaction before_[kCount];
};

}  // namespace lockstep
