#pragma once
// For how many ranks at once there is room.

#include <map>
#include <string>

namespace lockstep {

/// $LOCKSTEP_ROOM; inside a Slurm job its tasks, else its processors; else the cores that this process may use.
int room_for_ranks();

/// The same of an environment and a number of cores.
int room_for_ranks(const std::map<std::string, std::string>& environment, int cores);

/// Of emulated ranks, how many compute at once. More than there are cores: a rank that stands still in its turn shall keep no other
/// from the collective in which it is missed.
int emulated_turns();

}  // namespace lockstep
