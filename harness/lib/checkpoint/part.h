#pragma once
// One rank's part of a checkpoint, whatever the number of ranks that saved it.

#include <map>
#include <set>
#include <string>

#include "harness/lib/checkpoint/manifest.h"
#include "harness/lib/checkpoint/shard.h"
#include "harness/lib/checkpoint/state.h"

namespace lockstep::checkpoint {

/// Which rank of how many wants what. `expected` as in LoadOptions; null: everything, in even slices.
struct PartRequest {
  int rank = 0, world_size = 1;
  const State* expected = nullptr;
};

/// The first thing that the run needs and the checkpoint has not, or has otherwise: "sampler cursor: the run
/// needs it, the checkpoint has none", "parameters: w: F32 [4, 3] expected, found F32 [4, 2]". Empty: it
/// fits.
std::string misfit(const Manifest& manifest, const State* expected);

/// The files (their ranks) that hold this part.
std::set<int> files_of_part(const Manifest& manifest, const PartRequest& request);

struct Part {
  State state;
  std::vector<State> of_ranks;  ///< see LoadOutcome
  std::string problem;          ///< a file that does not hold what the manifest says
};
/// From verified files, by their ranks. Bytes are shared with the files where a tensor lies in one of them.
Part part_of(const Manifest& manifest, const std::map<int, ReadShard>& shards, const PartRequest& request);

}  // namespace lockstep::checkpoint
