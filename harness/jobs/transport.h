#pragma once
// What carries the collectives of a real rank, as its config asks.

#include <memory>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/comm/gloo_options.h"
#include "harness/verdict/config/run_config.h"
#include "harness/verdict/trace/rank_result.h"

namespace lockstep {

/// All that a process does which is asked whether `ranks` of its host can meet over the transport (harness/run/transport_check.h):
/// prints why not, or `kTransportFine`, on standard output. Returns the exit status: 0, or 2 with a problem.
int transport_main(const char* transport, const char* ranks);

/// Meets the other ranks over `config.transport`; `local_rank` is this one's place among the ranks of its host. Throws
/// std::runtime_error.
std::unique_ptr<Comm> meet_over_transport(const RunConfig& config, const GlooOptions& options, int local_rank);

/// Writes what carries this rank's collectives, and what that may be held to, into its result. Of emulated ranks and one process
/// alone there is nothing to say.
void note_transport(const RunConfig& config, RankResult& result);

}  // namespace lockstep
