#pragma once
// Two runs read side by side.

#include <cstdint>
#include <optional>
#include <string>

#include "harness/evidence/align.h"
#include "harness/results/results.h"

namespace lockstep {

/// How two runs' steps pair up until one of them ends.
class StepPairs {
 public:
  StepPairs(const std::string& dir_a, const std::string& dir_b) : a_(dir_a), b_(dir_b) {}
  RunReader& a() { return a_; }
  RunReader& b() { return b_; }
  bool same_layout() const { return a_.world_size() == b_.world_size(); }

  /// Reads the next step of both; false at the end of either, or where their steps part (see `missing_step`). The first
  /// is the first that both recorded: a resumed run, or one without its initial parameters, begins later.
  bool next();
  const StepOfRun& step_a() const { return *step_a_; }
  const StepOfRun& step_b() const { return *step_b_; }
  /// The steps before those; empty at the first.
  const std::optional<StepOfRun>& before_a() const { return before_a_; }
  const std::optional<StepOfRun>& before_b() const { return before_b_; }
  int64_t compared() const { return compared_; }
  /// A step that one run recorded and the other skipped.
  const std::optional<Divergence>& missing_step() const { return missing_step_; }
  /// In words what the comparison could not reach: cut traces, unequal lengths; empty if both ended together
  /// and whole.
  std::string ends() const;

 private:
  void begin_together();

  bool begun_ = false;
  RunReader a_, b_;
  std::optional<StepOfRun> step_a_, step_b_, before_a_, before_b_;
  std::optional<Divergence> missing_step_;
  int64_t compared_ = 0;
};

}  // namespace lockstep
