#include "harness/run/priority.h"

#include <sys/resource.h>

#include <cerrno>

namespace lockstep {
namespace {

constexpr int kNice = -10;

}  // namespace

Urgent::Urgent() {
  errno = 0;
  before_ = ::getpriority(PRIO_PROCESS, 0);  // of the calling thread; -1 is a niceness too
  if (errno != 0 || before_ <= kNice) return;
  raised_ = ::setpriority(PRIO_PROCESS, 0, kNice) == 0;
}

Urgent::~Urgent() { be_ordinary(); }

void Urgent::be_ordinary() const {
  if (raised_) ::setpriority(PRIO_PROCESS, 0, before_);
}

}  // namespace lockstep
