#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <unordered_map>
#include <vector>

#include "harness/plan/matrix/plan.h"
#include "harness/run/launch.h"

// Where texts go, and what the place can show.

namespace lockstep {

struct Console {
  std::ostream& out;  ///< data
  std::ostream& err;  ///< progress, logs, what is wrong
  bool out_colour = false;
  bool err_colour = false;
  bool err_terminal = false;  ///< a progress bar may be repainted
  int out_width = 0;          ///< columns of a terminal, 80 where it does not say; 0: not a terminal
  int err_width = 80;
  int err_height = 0;  ///< lines; 0: unknown
  bool quiet = false;  ///< of err only what is wrong

  /// Where progress goes.
  std::ostream& news() const;
};

/// Colour: never with NO_COLOR, always with CLICOLOR_FORCE other than 0, else on a terminal that is not dumb.
bool colour_wanted(bool is_terminal, const char* no_color, const char* clicolor_force, const char* term);

/// Standard output and standard error of this process.
Console process_console();

// What a terminal shows while a matrix runs, as lines.

struct ProgressState {
  int runs_done = 0, runs = 0;  ///< reused ones left out
  int64_t steps_done = 0, steps = 0;
  double elapsed_s = 0;
  double work_done = 0;  ///< fraction of the estimated work, in [0, 1]
  int failed = 0;
  double left_s = -1;  ///< negative: as much time as work
};

/// A run that is going.
struct RunningRow {
  std::string run, ranks;
  int64_t step = 0, steps = 0;
  double left_s = 0;
  std::string shown = {};  ///< "success 0.43": what its trainer is watched by; empty: nothing yet
};

/// Runs of one role.
struct ProgressGroup {
  std::string role;
  int done = 0, runs = 0;
};

struct ProgressView {
  ProgressState state;
  std::vector<RunningRow> running;
  std::vector<ProgressGroup> groups;
};

/// "[█████     ] 31/66 runs · about 38 s left · 12,400/39,600 steps · 850 steps/s", at most `width` columns.
std::string progress_line(const ProgressState& state, int width);

/// A line a run that is going, a line of the groups, and the bar: at most `height` lines of at most `width`
/// columns. The bar alone where there is no room for more. `colour`: the head is dim.
std::vector<std::string> progress_table(const ProgressView& view, int width, int height, bool colour);

/// "45 s", "3 min 20 s", "2 h 5 min".
std::string duration_text(double seconds);

// How long it still takes: what is left of the estimates, packed onto the slots, at the pace that was
// measured.

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

// How far a matrix is: a table that is repainted on a terminal, one line an event elsewhere.

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
