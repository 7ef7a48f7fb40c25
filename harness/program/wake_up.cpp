#include "harness/program/wake_up.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <string>

#include "harness/base/errors.h"

namespace lockstep::program {
namespace {

constexpr long kEvery_ns = 20'000'000;

void nothing(int) {}

}  // namespace

WakeUp::WakeUp() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_handler = nothing;  // no SA_RESTART: a wait shall end
    ::sigaction(SIGRTMIN, &action, nullptr);
  });
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGRTMIN;
  event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0)
    throw MachineError(std::string("cannot make a timer: ") + std::strerror(errno));
  // A signal that comes before the wait begins is lost, the next one is not.
  const itimerspec every{{0, kEvery_ns}, {0, kEvery_ns}};
  ::timer_settime(timer_, 0, &every, nullptr);
}

WakeUp::~WakeUp() { ::timer_delete(timer_); }

}  // namespace lockstep::program
