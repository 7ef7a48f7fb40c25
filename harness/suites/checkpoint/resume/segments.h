#pragma once
// Runs of the toy trainer in pieces, each from the checkpoint of the one before, on a disk in memory.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/suites/checkpoint/toy_trainer/run.h"

namespace lockstep::resume {

/// What all ranks recorded, by step and rank. A step that was taken twice has the later records.
using Steps = std::map<int64_t, std::vector<toy::StepRecord>>;

/// From where the segment before ended to the step `until`, saved there.
struct Segment {
  int ranks = 1;
  int64_t until = 0;
  bool asynchronous = false;
};

struct SegmentsDone {
  Steps steps;
  std::vector<std::vector<toy::RunEnd>> ends;  ///< by segment and rank
  std::string problem;  ///< a segment that did not come to its end, or did not begin where the one before ended
  const std::vector<toy::RunEnd>& last() const { return ends.back(); }
};
SegmentsDone run_segments(const toy::Config& config, const std::vector<Segment>& segments, double deadline_s);

/// The first step, from `from` to `until`, in which the records of any rank differ in a bit; -1: none.
int64_t first_difference(const Steps& expected, const Steps& seen, int64_t from, int64_t until);

/// Where the states of all ranks part, a sentence each, with the rank.
std::vector<std::string> end_differences(const std::vector<toy::RunEnd>& expected,
                                         const std::vector<toy::RunEnd>& seen);

/// A rank's state out of what a run ended with.
toy::TrainerState trainer_state_of(const toy::RunEnd& end, const toy::Config& config, int rank, int ranks);

}  // namespace lockstep::resume
