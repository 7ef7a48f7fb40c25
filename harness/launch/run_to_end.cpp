#include "harness/launch/run_to_end.h"

#include <csignal>

#include "harness/base/clock.h"
#include "harness/base/errors.h"

namespace lockstep {
namespace {

constexpr double kLook_s = 0.002;

}  // namespace

RunEnded run_to_end(Launcher& launcher, const RankStart& start, const RunLimits& limits,
                    const std::function<bool(const RunGoing&)>& look) {
  launcher.start(start);
  RunEnded ended;
  std::vector<int> pids;
  double started_s = monotonic_s(), give_up_s = started_s + limits.deadline_s + limits.load_s;
  while (ended.exits.size() < static_cast<std::size_t>(start.processes)) {
    for (LauncherEvent& event : launcher.poll(kLook_s)) {
      if (event.kind == LauncherEvent::Kind::ready || event.run != start.run) continue;
      if (event.kind == LauncherEvent::Kind::refused) throw MachineError("ranks cannot be started: " + event.message);
      if (event.kind == LauncherEvent::Kind::started) {
        pids = event.pids;
        started_s = monotonic_s();
        give_up_s = started_s + limits.deadline_s;
      } else if (event.kind == LauncherEvent::Kind::exit) {
        ended.exits.push_back(std::move(event));
      }
    }
    const double now_s = monotonic_s();
    const bool kill = look({pids, ended.exits, now_s - started_s}), late = now_s > give_up_s;
    const bool stop = *limits.stop_requested != 0;
    if (ended.killed || !(kill || late || stop)) continue;
    ended.killed = true;
    ended.left_before_kill = ended.exits.size();
    ended.late = late && !stop;
    launcher.stop(start.run, SIGKILL);
  }
  ended.seconds = monotonic_s() - started_s;
  return ended;
}

}  // namespace lockstep
