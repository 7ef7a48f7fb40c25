#pragma once
// How far a matrix is: a table that is repainted on a terminal, one line an event elsewhere.

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "harness/cli/session/console.h"
#include "harness/cli/session/progress_table.h"
#include "harness/cli/session/time_left.h"
#include "harness/run/launch.h"

namespace lockstep {

/// One line of a run's event, without a line feed; empty for progress and for reuse, which are reported in
/// total.
std::string event_line(const RunEvent& event);

class Progress {
 public:
  /// `clock`: seconds; a fake one in tests. `slots`: as the launcher has them, 0 the machine's cores.
  Progress(const Plan& plan, const Console& console, std::function<double()> clock, int slots = 0);
  ~Progress();
  void on_event(const RunEvent& event);
  /// Takes the table away.
  void finish();
  const ProgressState& state() const { return view_.state; }

 private:
  struct Run {
    const PlannedRun* planned = nullptr;
    std::size_t group = 0;
    int64_t steps = 0, steps_done = 0;
    double started_at = 0;
    bool going = false;
    std::string shown;
  };
  void advance(Run& run, int64_t steps_done);
  void end(std::size_t run, bool finished, double now);
  void fill_view(double now);
  void say(const RunEvent& event);
  void repaint(bool at_once);
  void clear();

  const Console& console_;
  std::function<double()> clock_;
  double started_, painted_at_;
  std::size_t painted_lines_ = 0;
  TimeLeft time_left_;
  std::vector<Run> runs_;  ///< that are not reused, as in time_left_
  std::unordered_map<std::string, std::size_t> index_;
  std::vector<std::size_t> going_;  ///< in the order of their starts
  ProgressView view_;
};

}  // namespace lockstep
