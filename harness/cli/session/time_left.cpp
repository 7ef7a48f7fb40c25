#include "harness/cli/session/time_left.h"

#include <algorithm>
#include <string>
#include <unordered_map>

namespace lockstep {

TimeLeft::TimeLeft(const Plan& plan, int slots) : slots_(std::max(1, slots)) {
  constexpr double kLeast_s = 1e-3;
  std::unordered_map<std::string, std::size_t> index;
  for (const PlannedRun& run : plan.runs) {
    if (run.reused) continue;
    Run own;
    own.estimate_s = std::max(run.estimate_s, kLeast_s);
    own.slots = run.exclusive ? slots_ : std::clamp(run.config.layout.world_size, 1, slots_);
    for (const std::string& need : run.needs) {
      if (const auto at = index.find(need); at != index.end()) own.needs.push_back(at->second);
    }
    index.emplace(run.id, runs_.size());
    runs_.push_back(std::move(own));
  }
}

void TimeLeft::progress(std::size_t run, double fraction, double elapsed_s) {
  runs_[run].fraction = std::max(runs_[run].fraction, std::clamp(fraction, 0.0, 1.0));
  runs_[run].elapsed_s = elapsed_s;
}

void TimeLeft::ended(std::size_t run, double elapsed_s, bool finished) {
  runs_[run].fraction = 1;
  runs_[run].elapsed_s = elapsed_s;
  runs_[run].lost = !finished;
}

double TimeLeft::work_done() const {
  double all = 0, done = 0;
  for (const Run& run : runs_) {
    all += run.estimate_s * run.slots;
    done += run.estimate_s * run.slots * run.fraction;
  }
  return all > 0 ? done / all : 1;
}

double TimeLeft::pace() const {
  double taken_s = 0, estimated_s = 0;
  for (const Run& run : runs_) {
    if (run.lost || run.fraction <= 0) continue;
    taken_s += run.elapsed_s;
    estimated_s += run.estimate_s * run.fraction;
  }
  return taken_s > 0 && estimated_s > 0 ? taken_s / estimated_s : 1;
}

double TimeLeft::run_left_s(std::size_t run) const {
  const Run& own = runs_[run];
  if (own.fraction >= 1) return 0;
  // A run's own pace, once known, predicts its end better than the pace of all.
  constexpr double kSeen = 0.1;
  if (own.fraction >= kSeen && own.elapsed_s > 0) return own.elapsed_s * (1 - own.fraction) / own.fraction;
  return own.estimate_s * (1 - own.fraction) * pace();
}

double TimeLeft::left_s() const {
  double slot_seconds = 0, longest = 0;
  std::vector<double> ends(runs_.size(), 0);
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    const double left = run.estimate_s * (1 - run.fraction);
    if (left <= 0) continue;
    slot_seconds += left * run.slots;
    double begin = 0;
    for (const std::size_t need : run.needs) begin = std::max(begin, ends[need]);
    ends[i] = begin + left;
    longest = std::max(longest, ends[i]);
  }
  return pace() * std::max(slot_seconds / slots_, longest);
}

}  // namespace lockstep
