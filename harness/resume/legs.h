#pragma once
// Runs of the light trainer in pieces, each from the checkpoint of the one before, on a disk in memory.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/light/run.h"

namespace lockstep::resume {

/// What all ranks recorded, by step and rank. A step that was taken twice has the later records.
using Steps = std::map<int64_t, std::vector<light::StepRecord>>;

/// From where the leg before ended to the step `until`, saved there.
struct Leg {
  int ranks = 1;
  int64_t until = 0;
  bool asynchronous = false;
};

struct LegsDone {
  Steps steps;
  std::vector<std::vector<light::RunEnd>> ends;  ///< by leg and rank
  std::string problem;  ///< a leg that did not come to its end, or did not begin where the one before ended
  const std::vector<light::RunEnd>& last() const { return ends.back(); }
};
LegsDone run_legs(const light::Config& config, const std::vector<Leg>& legs, double deadline_s);

/// The first step, from `from` to `until`, in which the records of any rank differ in a bit; -1: none.
int64_t first_difference(const Steps& expected, const Steps& seen, int64_t from, int64_t until);

/// Where the states of all ranks part, a sentence each, with the rank.
std::vector<std::string> end_differences(const std::vector<light::RunEnd>& expected,
                                         const std::vector<light::RunEnd>& seen);

/// A rank's state out of what a run ended with.
light::TrainerState trainer_state_of(const light::RunEnd& end, const light::Config& config, int rank, int ranks);

}  // namespace lockstep::resume
