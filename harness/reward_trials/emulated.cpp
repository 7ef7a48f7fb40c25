#include "harness/reward_trials/emulated.h"

#include "harness/saver/fiber.h"
#include "harness/saver/stage.h"
#include "harness/saver/stage_group.h"

namespace lockstep::rewards {

std::vector<Played> play_emulated(const Case& one, const Plant& plant) {
  std::vector<Played> played(static_cast<std::size_t>(one.world));
  if (one.world == 1) {
    checkpoint::AloneGroup group;
    played[0] = play(one, {plant, nullptr}, group);
    return played;
  }
  std::vector<int> order;
  for (int rank = 0; rank < one.world; ++rank) order.push_back(rank);
  saver::Stage stage(one.world, order, saver::kFibersAreSeen ? saver::Engine::fibers : saver::Engine::threads);
  saver::Meeting meeting(stage, 0, one.world);
  stage.run([&](int rank) {
    saver::StageGroup group(meeting, rank);
    PlayOptions options{plant, [&](FaultKind fault) {
                          if (fault == FaultKind::rank_hangs) stage.hang(rank);
                        }};
    played[static_cast<std::size_t>(rank)] = play(one, options, group);
    group.end();
  });
  return played;
}

}  // namespace lockstep::rewards
