#pragma once
// How long it still takes: what is left of the estimates, packed onto the slots, at the pace that was
// measured.

#include <cstddef>
#include <vector>

#include "harness/verdict/plan/plan.h"

namespace lockstep {

class TimeLeft {
 public:
  /// Counts the plan's runs that are not reused, in the plan's order.
  TimeLeft(const Plan& plan, int slots);

  /// `elapsed_s` since the run started; `fraction` of it is done.
  void progress(std::size_t run, double fraction, double elapsed_s);
  /// It has finished or will not: nothing of it is left.
  void ended(std::size_t run, double elapsed_s, bool finished);

  double work_done() const;  ///< slots times seconds that are done, as a fraction of all
  double run_left_s(std::size_t run) const;
  double left_s() const;
  /// Seconds that a second of the estimates takes: 1 until something has been seen.
  double pace() const;

 private:
  struct Run {
    double estimate_s = 0;
    int slots = 1;
    std::vector<std::size_t> needs;
    double fraction = 0, elapsed_s = 0;
    bool lost = false;  ///< its end says nothing of the pace
  };
  std::vector<Run> runs_;
  int slots_;
};

}  // namespace lockstep
