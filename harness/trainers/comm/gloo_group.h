#pragma once
// Groups for what ranks agree on beside training (harness/lib/checkpoint/group.h), over Gloo: each has a process group and a
// thread of its own, so that an asynchronous save never interleaves with training's collectives.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/group.h"
#include "harness/trainers/comm/gloo_options.h"

namespace lockstep {

/// How ranks see each other get on while they wait.
struct PeerSigns {
  std::function<uint64_t()> count;  ///< changes whenever another rank gets on
  std::function<void()> report;     ///< this rank gets on; never waits
};

/// One group for each name, over a store file of its own. Meets the other ranks; throws std::runtime_error when they do
/// not come within the timeout.
std::vector<std::unique_ptr<checkpoint::Group>> make_gloo_groups(const GlooOptions& options,
                                                                 const std::vector<std::string>& names,
                                                                 const PeerSigns& signs);

}  // namespace lockstep
