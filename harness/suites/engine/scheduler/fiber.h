#pragma once
// A function with a stack of its own on its caller's thread: it stops in the middle and goes on later.

#include <functional>
#include <memory>

namespace lockstep::scheduler {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  /// It must have come to its end.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs it until it suspends itself or ends. To be called by the thread that made it. The body throws nothing.
  void resume();
  /// Called within the body: goes back to who resumed it.
  void suspend();

 private:
  struct Context;
  static void enter(unsigned high, unsigned low);
  std::unique_ptr<Context> context_;
};

/// Sanitizers follow threads and lose their way in fibers.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kFibersAreSeen = false;
#else
inline constexpr bool kFibersAreSeen = true;
#endif

}  // namespace lockstep::scheduler
