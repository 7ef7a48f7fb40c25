#pragma once
// What carries the collectives of a real rank, as its config asks.

#include <memory>

#include "harness/comm/comm.h"
#include "harness/comm/gloo_options.h"
#include "harness/config/run_config.h"
#include "harness/trace/rank_result.h"

namespace lockstep {

/// All that a process does which is asked whether `ranks` of its host can meet over the carrier (harness/launch/carrier_check.h):
/// prints why not, or `kCarrierFine`, on standard output. Returns the exit status: 0, or 2 with a problem.
int carrier_main(const char* carrier, const char* ranks);

/// Meets the other ranks over `config.carrier`; `local_rank` is this one's place among the ranks of its host. Throws
/// std::runtime_error.
std::unique_ptr<Comm> meet_over_carrier(const RunConfig& config, const GlooOptions& options, int local_rank);

/// Writes what carries this rank's collectives, and what that may be held to, into its result. Of emulated ranks and one process
/// alone there is nothing to say.
void note_carrier(const RunConfig& config, RankResult& result);

}  // namespace lockstep
