#include "harness/run/priority.h"

#include <sys/resource.h>

#include <cerrno>

namespace lockstep {
namespace {

constexpr int kNice = -10;
constexpr int kOrdinary = 100;  // no niceness

thread_local int before = kOrdinary;  ///< of a thread that is urgent

}  // namespace

Urgent::Urgent() {
  errno = 0;
  const int now = ::getpriority(PRIO_PROCESS, 0);  // of the calling thread; -1 is a niceness too
  if (errno != 0 || now <= kNice) return;
  raised_ = ::setpriority(PRIO_PROCESS, 0, kNice) == 0;
  if (raised_) before = now;
}

Urgent::~Urgent() {
  if (!raised_) return;
  be_ordinary();
  before = kOrdinary;
}

void Urgent::be_ordinary() {
  if (before != kOrdinary) ::setpriority(PRIO_PROCESS, 0, before);
}

}  // namespace lockstep
