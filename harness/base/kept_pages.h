#pragma once
// Memory that comes and goes in pieces of many megabytes, kept for the next piece.

namespace lockstep {

/// While it lives, freed memory stays with the process, where glibc would give large pieces back and have the kernel clear the same
/// pages again: half the time of judging a wide model. Gives back what is free when it ends. Nothing with another allocator.
class KeptPages {
 public:
  KeptPages();
  ~KeptPages();
  KeptPages(const KeptPages&) = delete;
  KeptPages& operator=(const KeptPages&) = delete;
};

}  // namespace lockstep
