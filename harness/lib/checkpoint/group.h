#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/storage.h"

// What a save or a load needs of the other ranks: one collective.

namespace lockstep::checkpoint {

/// What came of a gather: the texts of all ranks, or why they cannot be had.
struct Gathered {
  std::vector<std::string> texts;  ///< by rank
  /// "rank 2 ended", "rank 1 gave no sign for 60 s": empty if all texts are here
  std::string problem;
  explicit operator bool() const { return problem.empty(); }
};

/// The ranks that save or load together. A saver's group is its own: no other thread may use it meanwhile.
class Group {
 public:
  Group() = default;
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Gives `mine` to every rank and waits for theirs; none leaves before all have come. Gives up when one of
  /// them has ended, or has shown no sign of progress for `deadline_s`, and then for good: every later gather
  /// fails at once, here and on the other ranks, so that nobody waits for one who has left. `label` names the
  /// place in the protocol, the same on all ranks.
  virtual Gathered all_gather(const std::string& label, const std::string& mine, double deadline_s) = 0;
  /// Tells the others, who may wait, that this rank still gets on with its work: their deadlines begin anew.
  /// Never waits.
  virtual void progress() {}
};

/// One rank alone.
class AloneGroup final : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Gathered all_gather(const std::string&, const std::string& mine, double) override { return {{mine}, ""}; }
};

/// A group with a hook before and after every gather; it counts with the rank's HookedStorage.
class HookedGroup final : public Group {
 public:
  HookedGroup(Group& inner, Seam& seam) : inner_(inner), seam_(seam) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Gathered all_gather(const std::string& label, const std::string& mine, double deadline_s) override;
  void progress() override { inner_.progress(); }

 private:
  Group& inner_;
  Seam& seam_;
};

/// Every operation on the disk is a sign of progress: a disk that is slow is no rank that hangs.
class ProgressHook final : public Hook {
 public:
  explicit ProgressHook(Group& group) : group_(group) {}
  void after(const Operation&, std::error_code) override { group_.progress(); }

 private:
  Group& group_;
};

/// What all ranks agree on about a deed of each: empty if every one was done, else the problems by rank
/// ("rank 1: …; rank 3: …"), or why the ranks could not agree. The same text on every rank that got all
/// answers.
std::string agree(Group& group, const std::string& label, const std::string& problem, double deadline_s);

// A group of ranks that are threads of one process.

/// Where the threads of one run meet. Outlives the groups that it gave.
class ThreadRendezvous {
 public:
  explicit ThreadRendezvous(int size);
  ~ThreadRendezvous();
  ThreadRendezvous(const ThreadRendezvous&) = delete;
  ThreadRendezvous& operator=(const ThreadRendezvous&) = delete;

  /// The group of one rank, to be taken once. Its end tells the others that the rank has ended.
  std::unique_ptr<Group> group(int rank);

 private:
  struct Table;
  class Member;
  std::unique_ptr<Table> table_;
};

// Ranks on one machine, as processes or threads: a socket between every two of them.

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
