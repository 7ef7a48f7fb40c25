#include "harness/lib/checkpoint/preemption/signals.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

// What handlers may touch: nothing that locks or allocates.
std::atomic<int> taken_first{0};
std::atomic<int64_t> taken_count{0}, taken_at_ns{0};
std::atomic<bool> taken{false};

std::array<std::atomic<pid_t>, SignalRelay::kMost> relay_to{};
std::atomic<int> relay_size{0}, relay_first{0};
std::atomic<bool> relaying{false};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free);

void take_signal(int number) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  int none = 0;
  if (taken_first.compare_exchange_strong(none, number))
    taken_at_ns = static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  ++taken_count;
}

void relay_signal(int number) {
  const int before = errno;
  int none = 0;
  relay_first.compare_exchange_strong(none, number);
  for (int at = 0; at < relay_size; ++at) {
    const pid_t process = relay_to[static_cast<std::size_t>(at)];
    if (process > 0) ::kill(process, number);
  }
  errno = before;
}

sigset_t set_of(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) sigaddset(&set, number);
  return set;
}

/// The other signals wait while one is handled. Calls that wait go on after it: who waits has work to finish.
std::vector<struct sigaction> install(const std::vector<int>& signals, void (*handler)(int)) {
  std::vector<struct sigaction> before(signals.size());
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  action.sa_mask = set_of(signals);
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &action, &before[i]);
  const sigset_t ours = set_of(signals);
  ::pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);
  return before;
}

void restore(const std::vector<int>& signals, const std::vector<struct sigaction>& before) {
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &before[i], nullptr);
}

}  // namespace

HeldSignals::HeldSignals(const std::vector<int>& signals) {
  const sigset_t set = set_of(signals);
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
}

HeldSignals::~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

PreemptionSignals::PreemptionSignals(std::vector<int> signals) : signals_(std::move(signals)) {
  LOCKSTEP_CHECK(!taken.exchange(true), "one object takes a process's signals");
  taken_first = 0;
  taken_count = 0;
  taken_at_ns = 0;
  before_ = install(signals_, take_signal);
}

PreemptionSignals::~PreemptionSignals() {
  restore(signals_, before_);
  taken = false;
}

int PreemptionSignals::first() const { return taken_first; }
int64_t PreemptionSignals::count() const { return taken_count; }
double PreemptionSignals::first_at_s() const { return static_cast<double>(taken_at_ns) * 1e-9; }

SignalRelay::SignalRelay(std::vector<int> signals) : signals_(std::move(signals)) {
  LOCKSTEP_CHECK(!relaying.exchange(true), "one object hands on a process's signals");
  relay_size = 0;
  relay_first = 0;
  before_ = install(signals_, relay_signal);
}

SignalRelay::~SignalRelay() {
  restore(signals_, before_);
  relay_size = 0;
  relaying = false;
}

void SignalRelay::add(pid_t process) {
  const HeldSignals held(signals_);
  const int at = relay_size;
  LOCKSTEP_CHECK(at < kMost, "the relay has room for every process");
  relay_to[static_cast<std::size_t>(at)] = process;
  relay_size = at + 1;
  if (const int came = relay_first; came != 0) ::kill(process, came);
}

void SignalRelay::remove(pid_t process) {
  const HeldSignals held(signals_);
  const int size = relay_size;
  for (int at = 0; at < size; ++at) {
    std::atomic<pid_t>& slot = relay_to[static_cast<std::size_t>(at)];
    if (slot == process) slot = 0;
  }
}

int SignalRelay::first() const { return relay_first; }

}  // namespace lockstep
