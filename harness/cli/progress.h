#pragma once
// How far a matrix is: one line that is repainted on a terminal, one line an event elsewhere.

#include <functional>
#include <string>
#include <unordered_map>

#include "harness/cli/console.h"
#include "harness/launch/launcher.h"

namespace lockstep {

struct ProgressState {
  int runs_done = 0, runs = 0;  ///< reused ones left out
  int64_t steps_done = 0, steps = 0;
  double elapsed_s = 0;
  double work_done = 0;  ///< fraction of the estimated work, in [0, 1]
  int failed = 0;
};

/// "[█████     ] 31/66 runs · 12,400/39,600 steps · 850 steps/s · about 38 s left", at most `width` columns.
std::string progress_line(const ProgressState& state, int width);

/// "45 s", "3 min 20 s", "2 h 5 min".
std::string duration_text(double seconds);

/// One line of a run's event, without its end; empty for progress and for reuse, which are told in sum.
std::string event_line(const RunEvent& event);

class Progress {
 public:
  /// `clock`: seconds; a fake one in tests.
  Progress(const Plan& plan, const Console& console, std::function<double()> clock);
  ~Progress();
  void on_event(const RunEvent& event);
  /// Takes the bar away.
  void finish();
  const ProgressState& state() const { return state_; }

 private:
  struct Run {
    double estimate_s = 0;
    int64_t steps = 0, steps_done = 0;
    double work_done_s = 0;
  };
  void advance(Run& run, int64_t steps_done, double fraction);
  void repaint(bool at_once);
  void clear();

  const Console& console_;
  std::function<double()> clock_;
  double started_, painted_at_;
  double work_s_ = 0, work_done_s_ = 0;
  bool painted_ = false;
  std::unordered_map<std::string, Run> runs_;
  ProgressState state_;
};

}  // namespace lockstep
