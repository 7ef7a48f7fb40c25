#pragma once
// Ranks on one machine, as processes or threads: a socket between every two of them.

#include <memory>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/group.h"

namespace lockstep::checkpoint {

/// One rank's ends of the sockets. When its process ends, the others see that at once.
class SocketGroup final : public Group {
 public:
  /// sockets[r]: this rank's end of the socket to rank r; -1 at its own place. Takes them over.
  SocketGroup(int rank, const std::vector<int>& sockets);
  ~SocketGroup() override;
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  Gathered all_gather(const std::string& label, const std::string& mine, double deadline_s) override;
  void progress() override;
  /// Closes this rank's ends without a word, as the end of its process would. After a fork each process does
  /// so with the groups of the other ranks; until then a rank's end goes unnoticed.
  void close();

 private:
  struct Peer {
    int socket = -1;
    std::string incoming = {};  ///< what has come of its text
    std::size_t sent = 0;       ///< of our own text
    bool complete = false;      ///< its text is here
    double heard_s = 0;
  };
  bool busy(const Peer& peer, std::size_t length) const;
  std::string wait_for_peers(std::size_t length, double deadline_s) const;
  std::string receive(int rank);
  std::string send(int rank, const std::string& text);
  std::string leave(const std::string& problem);

  int rank_;
  std::vector<Peer> peers_;
  double last_progress_s_ = 0;
  std::string label_;   ///< of the gather
  std::string broken_;  ///< why this group is at its end
};

/// The groups of `size` ranks, by rank. Throws MachineError if there are no sockets left.
std::vector<std::unique_ptr<SocketGroup>> make_socket_groups(int size);

}  // namespace lockstep::checkpoint
