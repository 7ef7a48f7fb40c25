#pragma once
// Several writers, runs or ranks of one run, that save into one folder in a prescribed order.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/saver/judge.h"
#include "harness/saver/scene.h"
#include "harness/stage/schedule.h"

namespace lockstep::saver {

/// One run: its ranks save one content together.
struct DuelRun {
  Content content;
  int ranks = 1;
};

struct Duel {
  std::string_view name, words;
  Scene scene;  ///< what stands there, and the options
  std::vector<DuelRun> runs;
  int actors() const;
  /// "run B, rank 1"
  std::vector<std::string> names() const;
};
std::span<const Duel> duels();
const Duel& duel_named(std::string_view name);

/// "run A stops before its operation 12, rename, and run B goes on; …"
std::string in_words(const Duel& duel, const stage::Schedule& schedule);

struct DuelEnd {
  Judgement judgement;
  std::vector<bool> preempted;  ///< by preemption: it took place
  std::vector<std::vector<checkpoint::OperationKind>> kinds;  ///< by actor
  std::vector<stage::Note> notes;
};
/// `disk`: what stands before; stays as it is.
DuelEnd judge_duel(const checkpoint::MemoryStorage& disk, const Duel& duel, const stage::Schedule& schedule,
                   const checkpoint::Planted& planted, bool notes, Contents& contents);

}  // namespace lockstep::saver
