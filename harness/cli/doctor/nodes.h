#pragma once
// `doctor --nodes`: one process on each node of a job. They meet in the shared folder, measure what they need of one another (the folder's
// latency and locks, ports, clocks), start a rank each for an all-reduce of all, and rank 0 says what was found.

#include <map>
#include <string>
#include <vector>

#include "harness/cli/doctor/node_facts.h"
#include "harness/run/rank_environment.h"
#include "harness/trainers/comm/all_reduce.h"

namespace lockstep {

/// What one process found on its node, and of the others.
struct NodeReport {
  std::string node;               ///< Slurm's name of it, else the host's
  std::vector<Check> checks;      ///< of the node alone
  std::string driver;             ///< of NVIDIA's; empty: none
  std::map<std::string, std::string> settings;  ///< variables NCCL_* and GLOO_*
  bool lock_holds = true;         ///< it was refused the lock that rank 0's process held
  std::vector<std::string> unreachable;  ///< "n2 (10.0.0.2:40001): Connection refused"
  int reached = 0;                ///< other processes to which it could connect
  double answer_s = 0;            ///< from rank 0's writing of a file until it saw this node's answer: the slowest of three; < 0: none came
  double clock_ahead_s = 0;       ///< of rank 0's clock; 0: no more than it took to ask
  std::vector<all_reduce::Answer> sums;  ///< of its rank, for 4 kB and for 64 MB; empty: none was asked for, or
  std::string sum_problem;        ///< why there are none
};

/// Two real ranks on this host, and what each got of the sums.
Check all_reduce_check(const std::string& rank_program);

/// A line for each check of the nodes, those that say the same on all nodes once, and lines on what is between nodes. The first report is
/// rank 0's. What is wrong comes with nodes and with what to do.
std::vector<Check> checks_of_nodes(const std::vector<NodeReport>& reports);

/// To be called on all ranks of `environment`. `folder` holds the meeting's files, and is removed; `mine`: node, checks, driver, settings.
/// `rank_program`: its ranks all-reduce where all can reach each other. Returns all reports on rank 0, none on others,
/// which wait for its end. Every wait ends. Throws RendezvousError and MachineError, which say who is missing.
std::vector<NodeReport> meet_nodes(const std::string& folder, const RankEnvironment& environment, NodeReport mine,
                                   const std::string& rank_program);

}  // namespace lockstep
