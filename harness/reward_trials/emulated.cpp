#include "harness/reward_trials/emulated.h"

#include "harness/stage/stage_group.h"

namespace lockstep::rewards {

std::vector<Played> play_emulated(const Case& one, const Plant& plant) {
  std::vector<Played> played(static_cast<std::size_t>(one.world));
  if (one.world == 1) {
    checkpoint::AloneGroup group;
    played[0] = play(one, {plant, nullptr}, group);
    return played;
  }
  stage::Stage stage(one.world);
  stage::Meeting meeting(stage, 0, one.world);
  stage.run([&](int rank) {
    stage::StageGroup group(meeting, rank);
    PlayOptions options{plant, [&](FaultKind fault) {
                          if (fault == FaultKind::rank_hangs) stage.hang(rank);
                        }};
    played[static_cast<std::size_t>(rank)] = play(one, options, group);
    group.end();
  });
  return played;
}

}  // namespace lockstep::rewards
