#pragma once
// One rank on a stage: its hook, which ends it, makes an operation fail, or gives the turn to another at the operation
// that its script names.

#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "harness/checkpoint/operation.h"
#include "harness/results/laboratory_results.h"
#include "harness/stage/stage.h"
#include "harness/stage/stage_group.h"

namespace lockstep::stage {

/// What befalls a rank at an operation.
enum class Act {
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
  Act act = Act::nothing;
  int64_t at = -1;
  std::error_code error = {};
  int reach = 0;         ///< end_within a gather: others that have the text
  double seconds = 0;    ///< slow: of each operation
};

/// What was done on a stage, in its order.
struct Note {
  int actor = 0;
  checkpoint::Operation operation = {};  ///< without bytes
  std::size_t size = 0;                  ///< of what was written
  std::string bytes = {};                ///< that were written, where they are kept
  std::error_code error = {};
  std::string mark = {};
};

/// What the actors of one case share.
struct Play {
  Stage& stage;
  std::vector<Preemption> preemptions = {};
  bool notes_wanted = false, bytes_wanted = false;
  bool syncs_left_out = false;  ///< on a real disk, where no power is lost
  std::vector<Note> notes = {};
  std::vector<bool> preempted = {};  ///< by preemption: it took place
  std::vector<int> committed = {};   ///< actors that heard of their commit, the first one first
};

class Actor final : public checkpoint::Hook {
 public:
  Actor(Play& play, int index, StageGroup* group, Script script = {})
      : play_(play), index_(index), group_(group), script_(script) {}
  checkpoint::Intervention before(const checkpoint::Operation& operation) override;
  void after(const checkpoint::Operation& operation, std::error_code error) override;
  /// Those that end with it, itself included.
  void ends_with(std::vector<Actor*> job) { job_ = std::move(job); }
  void end();
  /// Its script is at its end.
  void relent() { script_ = {}; }

  bool ended() const { return ended_; }
  bool acted() const { return acted_; }
  /// Operations that it came to while it lived.
  int64_t count() const { return count_; }
  const std::vector<checkpoint::OperationKind>& kinds() const { return kinds_; }

 private:
  checkpoint::Intervention act(const checkpoint::Operation& operation);
  void note(const checkpoint::Operation& operation, std::error_code error, std::string mark);

  Play& play_;
  int index_;
  StageGroup* group_;
  Script script_;
  std::vector<Actor*> job_;
  std::vector<checkpoint::OperationKind> kinds_;
  std::string mark_;
  int64_t count_ = 0;
  bool ended_ = false, acted_ = false, ends_after_ = false;
};

/// "ENOSPC".
std::string_view name_of(std::error_code error);

/// A timeline for the report.
std::vector<TimelineStep> timeline_of(const std::vector<Note>& notes, const std::vector<std::string>& actors);

}  // namespace lockstep::stage
