#pragma once
// Before anything starts: can this host's ranks meet over what the plan's real runs ask for?

#include <string>

#include "harness/verdict/plan/plan.h"

namespace lockstep {

/// `lockstep-rank --transport nccl 8`: can 8 ranks of this host meet over it? And what it prints where they can.
inline constexpr const char* kTransportOption = "--carrier";
inline constexpr const char* kTransportFine = "transport: fine";

/// Asks a process of `rank_program` of its own, in the environment of ranks: why `ranks` of this host cannot meet over the transport,
/// and what to do; empty: they can. 0 ranks: the plugin is asked for alone. gloo is never asked.
std::string transport_problem(const std::string& rank_program, Transport transport, int ranks);

/// Asks so of each transport of the plan's real runs, those that are reused left out (`all`: too), with the ranks of the largest one.
/// `here`: they all start on this host; else other hosts may have GPUs that this one lacks, and the plugin alone is required. Throws ConfigError.
void require_transports(const Plan& plan, const std::string& rank_program, bool all, bool here);

}  // namespace lockstep
