#pragma once

#include <vector>

#include "harness/cli/doctor/check.h"
#include "harness/cli/doctor/node_facts.h"

namespace lockstep {

/// A line each: host name, network, ports, shared memory, threads, shared folder, Slurm, clocks, GPUs, InfiniBand, memlock, settings of NCCL
/// and Gloo, tracing. What is wrong comes with
/// what to do.
std::vector<Check> node_checks(const NodeFacts& node);

}  // namespace lockstep
