#include "harness/cli/stop_signals.h"

namespace lockstep {
namespace {

constexpr int kNumbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
volatile int stop_requested = 0, first_number = 0;

void request_stop(int number) {
  if (stop_requested == 0) first_number = number;
  // A scheduler warns by one and tells by another: what is being saved then is not to be lost.
  if (stop_requested == 0) stop_requested = 1;
  else if (number == SIGINT) stop_requested = 2;
}

}  // namespace

const volatile int* StopSignals::requested() { return &stop_requested; }

const volatile int* StopSignals::number() { return &first_number; }

StopSignals::StopSignals() {
  struct sigaction action {};
  action.sa_handler = request_stop;  // no SA_RESTART: a wait shall end
  for (std::size_t i = 0; i < kCount; ++i) {
    ::sigaction(kNumbers[i], nullptr, &before_[i]);
    // Whoever started us under nohup wants us to live on.
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kNumbers[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kCount; ++i) ::sigaction(kNumbers[i], &before_[i], nullptr);
}

}  // namespace lockstep
