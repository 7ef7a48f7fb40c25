#pragma once
// Ranks of a scheduler as a group. It does what SocketGroup does (harness/lib/checkpoint/socket_group.h): an end is noticed at once,
// a rank that leaves tells the others why, silence is measured from the last sign. Only its time is the scheduler's.

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/group.h"
#include "harness/suites/engine/scheduler/scheduler.h"

namespace lockstep::scheduler {

class Meeting;

class ScheduledGroup final : public checkpoint::Group {
 public:
  ScheduledGroup(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override;
  checkpoint::Gathered all_gather(const std::string& label, const std::string& mine, double deadline_s) override;
  void progress() override;
  /// The rank's process ends: its sockets close.
  void end();
  /// The next gather ends this rank when this many others have its text.
  void end_within(int others) { others_before_end_ = others; }

 private:
  std::string problem_among(const std::string& label, double begun_s, double deadline_s) const;
  std::string leave(const std::string& problem);

  Meeting& meeting_;
  int rank_;
  int others_before_end_ = -1;
  std::string broken_;
};

/// What lies between the ranks: texts that were sent and not read yet.
class Meeting {
 public:
  /// The ranks are the scheduler's processes from `first_process` on.
  Meeting(Scheduler& scheduler, int first_process, int ranks);
  Scheduler& scheduler;
  const int first_process, ranks;

  struct Message {
    bool leaving = false;
    std::string label, text;
  };
  std::deque<Message>& box(int from, int to);
  std::vector<bool> ended;
  std::vector<double> heard_s;

 private:
  std::vector<std::deque<Message>> boxes_;
};

}  // namespace lockstep::scheduler
