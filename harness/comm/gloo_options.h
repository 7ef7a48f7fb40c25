#pragma once
// How a rank of several processes finds the others.

#include <string>

namespace lockstep {

struct GlooOptions {
  std::string store_path;  ///< a file that all ranks see; c10d's FileStore
  int rank = 0;
  int world_size = 1;
  std::string address = "127.0.0.1";
  double timeout_s = 60;
};

}  // namespace lockstep
