#include "harness/base/kept_pages.h"

#include <malloc.h>

namespace lockstep {

namespace {
constexpr int kPiecesMapped = 65536, kTrimmedAbove = 128 * 1024;  // as glibc begins with
}

KeptPages::KeptPages() {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
}

KeptPages::~KeptPages() {
  ::mallopt(M_MMAP_MAX, kPiecesMapped);
  ::mallopt(M_TRIM_THRESHOLD, kTrimmedAbove);
  ::malloc_trim(0);
}

}  // namespace lockstep
