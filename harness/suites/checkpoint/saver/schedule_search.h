#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/suites/checkpoint/saver/judge.h"
#include "harness/suites/engine/scheduler/scheduler.h"

// Several writers, runs or ranks of one run, that save into one folder in a prescribed order.

namespace lockstep::saver {

/// One run: its ranks save one content together.
struct WriterRaceRun {
  Content content;
  int ranks = 1;
};

struct WriterRace {
  std::string_view name, words;
  Scene scene;  ///< what stands there, and the options
  std::vector<WriterRaceRun> runs;
  int processes() const;
  /// "run B, rank 1"
  std::vector<std::string> names() const;
};

/// "run A stops before its operation 12, rename, and run B goes on; …"
std::string in_words(const WriterRace& writer_race, const scheduler::Schedule& schedule);

struct WriterRaceEnd {
  Judgement judgement;
  std::vector<bool> preempted;  ///< by preemption: it took place
  std::vector<std::vector<checkpoint::OperationKind>> kinds;  ///< by process
  std::vector<scheduler::Note> notes;
};

}  // namespace lockstep::saver
