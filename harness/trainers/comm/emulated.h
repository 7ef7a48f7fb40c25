#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/comm/gloo_options.h"

// Emulated ranks: threads of one process, each a full rank over an in-process c10d::Backend that adds in the
// very order of Gloo's ring.

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

// The order in which Gloo's ring all-reduce adds, so that emulated ranks get the bits of real ones.

/// Sums `inputs` (P buffers of `elements` values) into `output` in the order of Gloo's segmented ring: with B
/// = elements
/// * sizeof(T), segments = roundUp(max(ceil(B / 1 MiB), 2P), P), chunk c of the P chunks is
/// x_c + (x_{c+1} + (... + (x_{c-2} + x_{c-1}))), indices mod P. Instantiated for float, double and int64_t.
template <typename T>
void ring_sum(const std::vector<const T*>& inputs, std::size_t elements, T* output);

// Ranks compare themselves before their first collective: who has come, and with what.

/// What every rank must have alike: {"threads", "2"}, {"config", hash}; and its clock.
struct Identity {
  std::vector<std::pair<std::string, std::string>> facts;
  std::function<double()> clock;  ///< seconds since 1970, as the rank reads it; empty: its machine's
};

struct PreflightOptions {
  double wait_s = 10;      ///< for the last rank to come
  double most_skew_s = 2;  ///< of a rank's clock from the others', each compared with the time that the store's file got
};

/// The store's file, which stays until somebody removes it.
std::string preflight_path(const GlooOptions& options);

/// Meets the others in the store of `options` alone: no connection is made between ranks. Throws std::runtime_error, the same
/// on all ranks, which names the rank that has not come, that came twice, or whose world size, fact or clock differs from
/// most, and both values.
void run_preflight_check(const GlooOptions& options, const Identity& identity, const PreflightOptions& check);

}  // namespace lockstep
