#pragma once
// What a terminal shows while a matrix runs, as lines.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

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

}  // namespace lockstep
