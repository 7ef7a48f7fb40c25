#pragma once
// Signals that end a command in order instead of at once.

#include <csignal>
#include <cstddef>

namespace lockstep {

/// Takes SIGINT, SIGTERM, SIGHUP and SIGUSR1 as long as it lives; one of them that was ignored stays so.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// 0; 1 after the first signal; 2 after a further SIGINT (Ctrl-C twice): end at once.
  static const volatile int* requested();
  /// The first that came; 0: none.
  static const volatile int* number();

 private:
  static constexpr std::size_t kCount = 4;
  struct sigaction before_[kCount];
};

}  // namespace lockstep
