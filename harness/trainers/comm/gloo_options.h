#pragma once
// How a rank of several processes finds the others.

#include <string>

namespace lockstep {

/// Where ranks meet that are not all forked by one parent.
struct Rendezvous {
  std::string host;  ///< of rank 0's c10d TCPStore; empty: they meet by a file
  int port = 0;
  int listening = -1;  ///< rank 0: the bound socket of that store
};

struct GlooOptions {
  std::string store_path;  ///< a file that all ranks see; c10d's FileStore
  int rank = 0;
  int world_size = 1;
  std::string address = "127.0.0.1";  ///< of the interface by which the others reach this rank
  double timeout_s = 60;
  Rendezvous meet = {};  ///< with a host: store_path is no file but a prefix of the TCP store's keys
};

}  // namespace lockstep
