#pragma once
// What a run may leave behind when its processes have ended.

#include <set>
#include <string>
#include <vector>

namespace lockstep::faults {

/// What is there before a run: sockets that listen, names of shared memory.
struct Before {
  std::set<std::string> listening, shared_memory;
};
Before look_round();

/// Processes of the run's group; sockets that listen and were not there before, where a process of the group or none at all
/// holds them; new shared memory of LibTorch and Gloo; files in the run's folder that are none of a run's.
std::vector<std::string> left_behind(const Before& before, int group, const std::string& run_dir);

}  // namespace lockstep::faults
