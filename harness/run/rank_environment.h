#pragma once
// Which rank of which world is this process, by the word of whoever started it: one resolver for every launcher.
//
// Order of precedence: options of the command line, LOCKSTEP_*, torchrun, a Slurm step, Open MPI, PMI (MPICH, Intel
// MPI), Kubernetes. Rank environments that agree are fine; where two disagree nothing is guessed.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Name and value of each variable.
using Environment = std::map<std::string, std::string>;

Environment current_environment();

/// What a launcher says of one process. -1 and empty: not said.
struct RankEnvironment {
  std::string name;  ///< "torchrun", "Slurm step", …
  int rank = -1, world = -1;
  int local_rank = -1, local_world = -1;  ///< among the ranks of its node
  int node = -1;
  std::string address;   ///< where the launcher suggests to meet; rank 0 need not be there
  int port = 0;
  std::string file;      ///< a shared file to meet by
  std::string start;     ///< tells this start from others by the same launcher
  int restarts = 0;
};

/// One rank environment of which the environment says something, whole or not.
struct RankEnvironmentSeen {
  RankEnvironment rank_environment;
  std::vector<std::string> variables;  ///< "RANK=3", as found
  std::vector<std::string> lacks;      ///< variables without which it is half a rank environment
  std::vector<std::string> wrong;      ///< values that are no such number
  bool whole() const { return lacks.empty() && wrong.empty(); }
};

struct Resolution {
  std::optional<RankEnvironment> chosen;     ///< nothing: nobody said anything, or what they said cannot be followed
  std::vector<RankEnvironmentSeen> seen;     ///< by precedence
  std::vector<std::string> problems;  ///< what contradicts what, what lacks what; with any of these nothing is chosen
  std::vector<std::string> notes;     ///< what was seen and not mistaken for a rank environment
};

/// `arguments`: --rank R --world N [--local-rank L] [--rendezvous HOST:PORT|FILE], which go before everything, and
/// --environment NAME, which makes one rank environment alone count; others are left to the caller.
Resolution resolve_rank_environment(const Environment& environment, const std::vector<std::string>& arguments);

/// The names that --environment takes, by precedence.
std::vector<std::string> rank_environment_names();

/// All that was seen, a line for each rank environment: what doctor shows, and what stands above a conflict.
std::string rank_environment_table(const Resolution& resolution);

/// Inside a Slurm allocation, and no step's task: its job id. Empty elsewhere.
std::string batch_job(const Environment& environment);

/// Is it a variable by which a launcher tells one process which rank it is? Whoever starts ranks anew takes these away,
/// so that what it was started by is not mistaken for their launcher. A Slurm job's own variables are none of them.
bool is_rank_variable(std::string_view variable);

/// The first host of a Slurm host list: "n[07-12,20],m3" gives "n07".
std::string first_host(const std::string& list);

/// The entry of node `index` in a Slurm count list: "2(x3),1" gives 2, 2, 2, 1. -1 if there is none.
int tasks_of_node(const std::string& list, int index);

/// The GPU of a rank: the local_rank-th that `visible` (CUDA_VISIBLE_DEVICES; unset: nothing said) lets it see, as
/// an index among those. Where the launcher gave each rank one device of its own, that one. -1: none is visible.
int device_of(int local_rank, const std::optional<std::string>& visible, int devices_of_machine);

}  // namespace lockstep
