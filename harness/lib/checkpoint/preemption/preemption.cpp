#include "harness/lib/checkpoint/preemption/preemption.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <ctime>

#include "harness/base/machine.h"
#include "harness/base/text.h"

namespace lockstep {

bool Preemption::heard(int greatest_of_all) {
  if (greatest_of_all == 0 || agreed_ != 0) return agreed_ != 0;
  agreed_ = greatest_of_all;
  heard_at_s_ = monotonic_s();
  return true;
}

bool Preemption::agree(checkpoint::Group& group, double deadline_s, std::string& problem) {
  const checkpoint::Gathered all = group.all_gather("preemption", std::to_string(tells()), deadline_s);
  problem = all.problem;
  if (!all) return false;
  int greatest = 0;
  for (const std::string& text : all.texts) {
    int number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    greatest = std::max(greatest, number);
  }
  return heard(greatest);
}

double Preemption::left_s() const {
  const double own_s = signals_.first_at_s();
  if (own_s == 0 && agreed_ == 0) return options_.grace_s;
  const double since_s = own_s == 0 ? heard_at_s_ : own_s;
  return std::max(0.0, options_.grace_s - (monotonic_s() - since_s));
}

int Preemption::exit_code() const {
  if (agreed_ == 0) return 0;
  return options_.exit_code != 0 ? options_.exit_code : 128 + agreed_;
}

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
