#include "scenarios/flow_rl/tasks/tasks.h"

#include <algorithm>
#include <vector>

namespace lockstep::manipulation {

std::span<const ManipulationTask> manipulation_tasks() {
  static const std::vector<ManipulationTask> all = [] {
    std::vector<ManipulationTask> tasks;
    for (const auto& table : {moving_tasks(), pushing_tasks(), carrying_tasks(), working_tasks()}) {
      tasks.insert(tasks.end(), table.begin(), table.end());
    }
    return tasks;
  }();
  return all;
}

int find_task(std::string_view name) {
  const std::span<const ManipulationTask> all = manipulation_tasks();
  const auto found = std::ranges::find(all, name, &ManipulationTask::name);
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

Body begin_task(const ManipulationTask& task, uint64_t key) {
  Draws draws(key);
  Body body;
  body.hand = {draws.uniform(-0.9, -0.5), draws.uniform(-0.6, 0.6)};
  task.begin(body, draws);
  return body;
}

void take_step(const ManipulationTask& task, Body& body, const Action& action) {
  const double x = std::clamp(action.x, -1.0, 1.0), y = std::clamp(action.y, -1.0, 1.0);
  body.hand.x = std::clamp(body.hand.x + x * kSpeed, -1.0, 1.0);
  body.hand.y = std::clamp(body.hand.y + y * kSpeed, -1.0, 1.0);
  body.closed = action.grip > 0;
  body.cost += 0.02 * (x * x + y * y);
  ++body.step;
  if (task.move != nullptr) task.move(body);
}

Action towards(Point from, Point to, double grip) {
  const Point way = (to - from) * (1 / kSpeed);
  const double far = std::max(length(way), 1.0);
  return {way.x / far, way.y / far, grip};
}

}  // namespace lockstep::manipulation
