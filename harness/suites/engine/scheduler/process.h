#pragma once
// One rank on a scheduler: its hook, which ends it, makes an operation fail, or gives the turn to another at the operation
// that its script names.

#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "harness/lib/checkpoint/operation.h"
#include "harness/suites/engine/scheduler/scheduled_group.h"
#include "harness/suites/engine/scheduler/scheduler.h"
#include "harness/verdict/results/suite_results.h"

namespace lockstep::scheduler {

/// What befalls a rank at an operation.
enum class InjectedFault {
  nothing,
  end,          ///< its process ends before it
  end_all,      ///< all processes of the job end before it
  end_within,   ///< half of a write is done, or some of the others have its text, and its process ends
  fail,         ///< it is not performed and fails
  fail_done,    ///< it is performed, and fails all the same
  fail_onward,  ///< it and every later one that needs room on the disk
  fail_folder,  ///< it and every later one that changes a file or folder
  shorten,      ///< a write takes one byte
  slow,         ///< each operation on files from here on takes that many seconds
  hang,         ///< it never returns
};

struct Script {
  InjectedFault injected = InjectedFault::nothing;
  int64_t at = -1;
  std::error_code error = {};
  int reach = 0;         ///< end_within a gather: others that have the text
  double seconds = 0;    ///< slow: of each operation
};

/// What was done on a scheduler, in its order.
struct Note {
  int process = 0;
  checkpoint::Operation operation = {};  ///< without bytes
  std::size_t size = 0;                  ///< of what was written
  std::string bytes = {};                ///< that were written, where they are kept
  std::error_code error = {};
  std::string mark = {};
};

/// What the processes of one case share.
struct SharedRun {
  Scheduler& scheduler;
  std::vector<Preemption> preemptions = {};
  bool notes_wanted = false, bytes_wanted = false;
  bool syncs_left_out = false;  ///< on a real disk, where no power is lost
  std::vector<Note> notes = {};
  std::vector<bool> preempted = {};  ///< by preemption: it took place
  std::vector<int> committed = {};   ///< processes that heard of their commit, the first one first
};

class ScheduledProcess final : public checkpoint::Hook {
 public:
  ScheduledProcess(SharedRun& play, int index, ScheduledGroup* group, Script script = {})
      : play_(play), index_(index), group_(group), script_(script) {}
  checkpoint::Intervention before(const checkpoint::Operation& operation) override;
  void after(const checkpoint::Operation& operation, std::error_code error) override;
  /// Those that end with it, itself included.
  void ends_with(std::vector<ScheduledProcess*> job) { job_ = std::move(job); }
  void end();
  /// Its script is at its end.
  void relent() { script_ = {}; }

  bool ended() const { return ended_; }
  bool acted() const { return acted_; }
  /// Operations that it came to while it lived.
  int64_t count() const { return count_; }
  const std::vector<checkpoint::OperationKind>& kinds() const { return kinds_; }

 private:
  checkpoint::Intervention injected(const checkpoint::Operation& operation);
  void note(const checkpoint::Operation& operation, std::error_code error, std::string mark);

  SharedRun& play_;
  int index_;
  ScheduledGroup* group_;
  Script script_;
  std::vector<ScheduledProcess*> job_;
  std::vector<checkpoint::OperationKind> kinds_;
  std::string mark_;
  int64_t count_ = 0;
  bool ended_ = false, acted_ = false, ends_after_ = false;
};

/// "ENOSPC".
std::string_view name_of(std::error_code error);

/// A timeline for the report.
std::vector<TimelineStep> timeline_of(const std::vector<Note>& notes, const std::vector<std::string>& processes);

}  // namespace lockstep::scheduler
