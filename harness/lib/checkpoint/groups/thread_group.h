#pragma once
// A group of ranks that are threads of one process.

#include <memory>
#include <string>

#include "harness/lib/checkpoint/group.h"

namespace lockstep::checkpoint {

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

}  // namespace lockstep::checkpoint
