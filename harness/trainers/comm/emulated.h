#pragma once
// Emulated ranks: threads of one process, each a full rank over an in-process c10d::Backend that adds in the
// very order of Gloo's ring.

#include <memory>
#include <string>

#include "harness/trainers/comm/comm.h"

namespace lockstep {

/// Where the V threads of one run meet.
class EmulatedWorld {
 public:
  /// To be made before the ranks' threads: it makes MKL's first calls (make_first_calls in emulated.cpp).
  EmulatedWorld(int world_size, double timeout_s);
  ~EmulatedWorld();
  EmulatedWorld(const EmulatedWorld&) = delete;
  EmulatedWorld& operator=(const EmulatedWorld&) = delete;

  /// The Comm of one rank; call it in that rank's own thread. The world must outlive it.
  std::unique_ptr<Comm> comm(int rank);

  /// Ends every collective that waits, and every later one, with an error that carries `reason`. To be called
  /// when a rank has died.
  void abort(const std::string& reason);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
