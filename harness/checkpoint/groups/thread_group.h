#pragma once
// A group of ranks that are threads of one process.

#include <memory>
#include <string>

#include "harness/checkpoint/group.h"

namespace lockstep::checkpoint {

/// Where the threads of one run meet. Outlives the groups that it gave.
class ThreadMeeting {
 public:
  explicit ThreadMeeting(int size);
  ~ThreadMeeting();
  ThreadMeeting(const ThreadMeeting&) = delete;
  ThreadMeeting& operator=(const ThreadMeeting&) = delete;

  /// The group of one rank, to be taken once. Its end tells the others that the rank has ended.
  std::unique_ptr<Group> group(int rank);

 private:
  struct Table;
  class Member;
  std::unique_ptr<Table> table_;
};

}  // namespace lockstep::checkpoint
