#pragma once
// Ranks compare themselves before their first collective: who has come, and with what.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/trainers/comm/gloo_options.h"

namespace lockstep {

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
