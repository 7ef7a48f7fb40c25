// Tasks in which the hand pushes the object, a disk: push, slide, sweep.

#include <algorithm>
#include <array>

#include "scenarios/flow_rl/tasks/tasks.h"

namespace lockstep::manipulation {
namespace {

constexpr double kDisk = 0.14;  // from the hand's middle to the disk's when they touch

/// The disk gives way along the line of both middles.
void push_away(Body& body) {
  const Point apart = body.object - body.hand;
  const double far = length(apart);
  if (far >= kDisk || far < 1e-9) return;
  body.object = body.hand + apart * (kDisk / far);
  body.object.x = std::clamp(body.object.x, -1.0, 1.0);
  body.object.y = std::clamp(body.object.y, -1.0, 1.0);
}

/// Behind the object as seen from `goal`, then through it.
Action push_towards(const Body& body, Point goal) {
  const Point way = goal - body.object;
  const double far = std::max(length(way), 1e-9);
  const Point behind = body.object - way * ((kDisk + 0.02) / far);
  const Point apart = body.object - body.hand;
  const double aligned = (apart.x * way.x + apart.y * way.y) / (std::max(length(apart), 1e-9) * far);
  if (aligned > 0.9) return towards(body.hand, body.hand + way * ((std::min(far, kSpeed) + 0.02) / far) + (behind - body.hand) * 0.3, -1);
  if (aligned < 0 && length(apart) < 0.3) {
    // Around it, so that it is not pushed away from the goal.
    const double side = apart.x * way.y - apart.y * way.x > 0 ? 1 : -1;
    const Point across = Point{-way.y, way.x} * (side * 0.3 / far);
    return towards(body.hand, body.object + across - way * (0.1 / far), -1);
  }
  return towards(body.hand, behind, -1);
}

// --- push: to a goal in the plane ---

void begin_push(Body& body, Draws& draws) {
  body.object = {draws.uniform(-0.25, 0.0), draws.uniform(-0.35, 0.35)};
  body.goal = body.object + Point{draws.uniform(0.35, 0.6), draws.uniform(-0.25, 0.25)};
}
bool solved_push(const Body& body) { return distance(body.object, body.goal) < 0.13; }
double remaining_push(const Body& body) {
  return distance(body.object, body.goal) + 0.3 * std::max(0.0, distance(body.hand, body.object) - kDisk);
}
Action expert_push(const Body& body) { return push_towards(body, body.goal); }

// --- slide: along a rail to a mark, without going past it ---

void begin_slide(Body& body, Draws& draws) {
  body.object = {draws.uniform(-0.2, 0.1), draws.uniform(-0.5, 0.5)};
  body.goal = {body.object.x + draws.uniform(0.3, 0.6), body.object.y};
}
void move_slide(Body& body) {
  const Point apart = body.object - body.hand;
  if (std::abs(apart.y) > 0.12 || std::abs(apart.x) > kDisk) return;
  body.object.x = std::clamp(body.hand.x + (apart.x >= 0 ? kDisk : -kDisk), -1.0, 1.0);
}
bool solved_slide(const Body& body) { return std::abs(body.object.x - body.goal.x) < 0.06; }
double remaining_slide(const Body& body) {
  return std::abs(body.object.x - body.goal.x) + 0.3 * std::max(0.0, distance(body.hand, body.object) - kDisk);
}
Action expert_slide(const Body& body) {
  const double y = body.object.y;
  if (std::abs(body.hand.y - y) > 0.06 && body.object.x - body.hand.x < kDisk + kSpeed) {
    return towards(body.hand, {body.object.x - 0.35, y}, -1);
  }
  return towards(body.hand, {body.goal.x - kDisk, y}, -1);
}

// --- sweep: over a line ---

void begin_sweep(Body& body, Draws& draws) {
  body.object = {draws.uniform(-0.2, 0.2), draws.uniform(-0.5, 0.5)};
  body.goal = {0.5, body.object.y};
}
bool solved_sweep(const Body& body) { return body.object.x > body.goal.x; }
double remaining_sweep(const Body& body) {
  return std::max(0.0, body.goal.x - body.object.x) + 0.3 * std::max(0.0, distance(body.hand, body.object) - kDisk);
}
Action expert_sweep(const Body& body) { return push_towards(body, {1.0, body.object.y}); }

constexpr std::array kPushingTasks = {
    ManipulationTask{"push", "the hand pushes a disk to the goal", begin_push, push_away, solved_push, remaining_push,
                     expert_push},
    ManipulationTask{"slide", "the hand pushes a block along a rail to a mark", begin_slide, move_slide, solved_slide,
                     remaining_slide, expert_slide},
    ManipulationTask{"sweep", "the hand pushes a disk over a line", begin_sweep, push_away, solved_sweep,
                     remaining_sweep, expert_sweep},
};

}  // namespace

std::span<const ManipulationTask> pushing_tasks() { return kPushingTasks; }

}  // namespace lockstep::manipulation
