#include "harness/lib/checkpoint/preemption/signals.h"

#include <atomic>
#include <ctime>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

// What handlers may touch: nothing that locks or allocates.
std::atomic<int> taken_first{0};
std::atomic<int64_t> taken_count{0}, taken_at_ns{0};
std::atomic<bool> taken{false};

static_assert(std::atomic<int64_t>::is_always_lock_free);

void take_signal(int number) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  int none = 0;
  if (taken_first.compare_exchange_strong(none, number))
    taken_at_ns = static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  ++taken_count;
}

sigset_t set_of(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) sigaddset(&set, number);
  return set;
}

}  // namespace

PreemptionSignals::PreemptionSignals(std::vector<int> signals) : signals_(std::move(signals)) {
  LOCKSTEP_CHECK(!taken.exchange(true), "one object takes a process's signals");
  taken_first = 0;
  taken_count = 0;
  taken_at_ns = 0;
  // The other signals wait while one is handled. Calls that wait go on after it: who waits has work to finish.
  struct sigaction action{};
  action.sa_handler = take_signal;
  action.sa_flags = SA_RESTART;
  action.sa_mask = set_of(signals_);
  before_.resize(signals_.size());
  for (std::size_t i = 0; i < signals_.size(); ++i) ::sigaction(signals_[i], &action, &before_[i]);
  ::pthread_sigmask(SIG_UNBLOCK, &action.sa_mask, nullptr);
}

PreemptionSignals::~PreemptionSignals() {
  for (std::size_t i = 0; i < signals_.size(); ++i) ::sigaction(signals_[i], &before_[i], nullptr);
  taken = false;
}

int PreemptionSignals::first() const { return taken_first; }
int64_t PreemptionSignals::count() const { return taken_count; }
double PreemptionSignals::first_at_s() const { return static_cast<double>(taken_at_ns) * 1e-9; }

}  // namespace lockstep
