#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/judge/compare/led.h"

// lockstep check --resumed: a run that was stopped and resumed, against one that went through.

namespace lockstep {

/// A run that its trainer resumed, against what it was stopped with and against a run that went through. Steps are the whole run's.
struct ResumedFindings {
  std::vector<LedItem> items;     ///< states that a trainer has to save, and after them what the steps computed; those that differ in the order of their weight
  std::vector<std::string> lost;  ///< names of the states that differ and are no consequence of another
  int64_t stopped = 0;            ///< the step that would have begun when the run was stopped
  int64_t begins = 0;             ///< the step whose beginning the resumed run's first one is
  int64_t steps = 0;              ///< that were compared
  bool anew = false;              ///< it begins as the run had begun: nothing was loaded
  int64_t chance = -1;            ///< the first step at which the run that was stopped differs from the whole one by itself
  std::string chance_text = {};   ///< what differs there
  bool unseeded = false;          ///< two runs begin with other weights

  const LedItem* find(const std::string& name) const;
};

/// All three are folders of runs that LOCKSTEP_STOP ended. Throws TraceError.
ResumedFindings judge_resumed(const std::string& whole, const std::string& stopped, const std::string& resumed);

}  // namespace lockstep
