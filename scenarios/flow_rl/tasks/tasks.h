#pragma once
// The suite of simulated manipulation tasks, behind one table.

#include <cstddef>
#include <span>
#include <string_view>

#include "scenarios/flow_rl/tasks/body.h"

namespace lockstep::manipulation {

struct ManipulationTask {
  std::string_view name;
  std::string_view help;
  void (*begin)(Body& body, Draws& draws);            ///< places everything; the hand stands already
  void (*move)(Body& body);                           ///< what the hand's last movement does to the rest; null: nothing
  bool (*solved)(const Body& body);
  double (*remaining)(const Body& body);              ///< a distance that falls to 0 as the task is solved
  Action (*expert)(const Body& body);                 ///< what solves it
};

/// In the order of their places in an observation.
std::span<const ManipulationTask> manipulation_tasks();
/// -1: there is none of that name.
int find_task(std::string_view name);

/// Its initial state, which depends on the key alone.
Body begin_task(const ManipulationTask& task, uint64_t key);
/// One simulated step. Values beyond [-1, 1] are clipped.
void take_step(const ManipulationTask& task, Body& body, const Action& action);

// Tables of the units beside this one.
std::span<const ManipulationTask> moving_tasks();
std::span<const ManipulationTask> pushing_tasks();
std::span<const ManipulationTask> carrying_tasks();
std::span<const ManipulationTask> working_tasks();

/// At most full speed towards a place; slower when it is near.
Action towards(Point from, Point to, double grip);

}  // namespace lockstep::manipulation
