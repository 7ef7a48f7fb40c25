#pragma once
// Several processes at one counter in a file, in a prescribed order; and whether any order of whole
// operations explains what they were told.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/data/sharding/file_counter.h"
#include "harness/lib/data/sharding/finding.h"
#include "harness/suites/engine/scheduler/schedule.h"
#include "harness/suites/engine/suite.h"

namespace lockstep::sampling {

enum class CounterVerb { reset, add, read };
struct CounterCall {
  CounterVerb verb = CounterVerb::add;
  int64_t value = 1;  ///< of reset and add
};

struct CounterScene {
  std::string_view name, words;
  std::vector<std::vector<CounterCall>> processes;
  std::vector<std::string> names() const;
  /// Does one of them reset it?
  bool resets() const;
};
std::span<const CounterScene> counter_scenes();

/// One call as it was seen. Times count what began and ended on the scheduler.
struct CounterEvent {
  int process = 0;
  CounterCall call;
  sharding::CounterAnswer answer;
  int64_t begun = 0, ended = 0;
  bool cut_off = false;  ///< its process ended within it: it took place or did not, and nobody was told
};

/// The counter stands at `start` and then all of these take place. The first of:
///
///   call_failed      a call came to a problem
///   reset_half_seen  no order of whole calls explains the answers, and a reset took place beside the others
///   lost_update      … and two adds were given the same numbers
///   no_order         … and neither
sharding::Finding audit_counter(int64_t start, const std::vector<CounterEvent>& events,
                                const std::vector<std::string>& names);

struct CounterSchedule : scheduler::Schedule {
  int dies = -1;  ///< process whose process ends before its operation `dies_at`; -1: none
  int64_t dies_at = -1;
};
std::string in_words(const CounterScene& scene, const CounterSchedule& schedule);

struct CounterEnd {
  sharding::Finding finding;
  std::vector<bool> preempted;  ///< by preemption: it took place
  bool died = false;
  std::vector<TimelineStep> timeline;
};
CounterEnd play_counter(const CounterScene& scene, const CounterSchedule& schedule,
                        sharding::CounterPlanted planted, bool notes);

}  // namespace lockstep::sampling
