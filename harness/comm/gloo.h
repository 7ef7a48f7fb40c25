#pragma once
// Real ranks: one process each, over Gloo.

#include <memory>
#include <string>

#include "harness/comm/comm.h"

namespace lockstep {

struct GlooOptions {
  std::string store_path;  ///< a file that all ranks see; c10d's FileStore
  int rank = 0;
  int world_size = 1;
  std::string address = "127.0.0.1";
  double timeout_s = 60;
};

/// Meets the other ranks. Throws std::runtime_error when they do not come within the timeout.
std::unique_ptr<Comm> make_gloo_comm(const GlooOptions& options);

}  // namespace lockstep
