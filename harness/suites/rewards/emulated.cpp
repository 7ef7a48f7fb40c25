#include "harness/suites/rewards/emulated.h"

#include "harness/suites/engine/scheduler/scheduler.h"

namespace lockstep::rewards {

std::vector<Played> play_emulated(const Case& one, const Plant& plant) {
  std::vector<Played> played(static_cast<std::size_t>(one.world));
  if (one.world == 1) {
    checkpoint::AloneGroup group;
    played[0] = play(one, {plant, nullptr}, group);
    return played;
  }
  scheduler::Scheduler scheduler(one.world);
  scheduler::Meeting meeting(scheduler, 0, one.world);
  scheduler.run([&](int rank) {
    scheduler::ScheduledGroup group(meeting, rank);
    PlayOptions options{plant, [&](FaultKind fault) {
                          if (fault == FaultKind::rank_hangs) scheduler.hang(rank);
                        }};
    played[static_cast<std::size_t>(rank)] = play(one, options, group);
    group.end();
  });
  return played;
}

}  // namespace lockstep::rewards
