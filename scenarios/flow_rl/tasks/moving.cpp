// Tasks of the hand alone: reach, follow, avoid.

#include <algorithm>
#include <array>

#include "scenarios/flow_rl/tasks/tasks.h"

namespace lockstep::manipulation {
namespace {

// --- reach: the hand comes to the goal and stays there for two steps; own[0]: steps at the goal ---

void begin_reach(Body& body, Draws& draws) { body.goal = {draws.uniform(0.2, 0.9), draws.uniform(-0.9, 0.9)}; }
void move_reach(Body& body) { body.own[0] = distance(body.hand, body.goal) < 0.07 ? body.own[0] + 1 : 0; }
bool solved_reach(const Body& body) { return body.own[0] >= 2; }
double remaining_reach(const Body& body) { return distance(body.hand, body.goal); }
Action expert_reach(const Body& body) { return towards(body.hand, body.goal, -1); }

// --- follow: the goal moves along a circle's chords, own[0] and own[1] are its velocity, own[2] the steps near it ---

void begin_follow(Body& body, Draws& draws) {
  body.goal = {draws.uniform(-0.3, 0.3), draws.uniform(-0.6, 0.6)};
  body.own[0] = draws.uniform(0.01, 0.05);
  body.own[1] = draws.uniform(-0.05, 0.05);
}
void move_follow(Body& body) {
  for (const auto& [place, speed] : {std::pair{&body.goal.x, &body.own[0]}, std::pair{&body.goal.y, &body.own[1]}}) {
    *place += *speed;
    if (std::abs(*place) > 0.9) *speed = -*speed;
  }
  body.own[2] += distance(body.hand, body.goal) < 0.1 ? 1 : 0;
}
bool solved_follow(const Body& body) { return body.own[2] >= 6; }
double remaining_follow(const Body& body) {
  return distance(body.hand, body.goal) * 0.5 + 0.1 * std::max(0.0, 6 - body.own[2]);
}
Action expert_follow(const Body& body) {
  return towards(body.hand, body.goal + Point{body.own[0], body.own[1]}, -1);
}

// --- avoid: the hand comes to the goal around the object, which it must not touch ---

constexpr double kObstacle = 0.22;

void begin_avoid(Body& body, Draws& draws) {
  body.goal = {draws.uniform(0.6, 0.9), draws.uniform(-0.4, 0.4)};
  const double along = draws.uniform(0.4, 0.6);
  body.object = body.hand + (body.goal - body.hand) * along;
  body.object.y += draws.uniform(-0.1, 0.1);
}
void move_avoid(Body& body) {
  if (distance(body.hand, body.object) >= kObstacle) return;
  body.hit = true;
  body.cost += 0.2;
}
bool solved_avoid(const Body& body) { return !body.hit && distance(body.hand, body.goal) < 0.08; }
double remaining_avoid(const Body& body) { return distance(body.hand, body.goal) + (body.hit ? 1 : 0); }
Action expert_avoid(const Body& body) {
  const Point to_goal = body.goal - body.hand, to_object = body.object - body.hand;
  const double far = std::max(length(to_goal), 1e-9);
  const double ahead = (to_object.x * to_goal.x + to_object.y * to_goal.y) / far;
  const double beside = (to_object.x * to_goal.y - to_object.y * to_goal.x) / far;  // > 0: the object lies right of the way
  if (ahead < -0.05 || std::abs(beside) > kObstacle + 0.1) return towards(body.hand, body.goal, -1);
  const double side = beside > 0 ? 1 : -1;
  const Point across = Point{-to_goal.y, to_goal.x} * (side / far);
  return towards(body.hand, body.object + across * (kObstacle + 0.16), -1);
}

constexpr std::array kMovingTasks = {
    ManipulationTask{"reach", "the hand comes to the goal and stays there", begin_reach, move_reach, solved_reach,
                     remaining_reach, expert_reach},
    ManipulationTask{"follow", "the hand stays with a goal that moves", begin_follow, move_follow, solved_follow,
                     remaining_follow, expert_follow},
    ManipulationTask{"avoid", "the hand comes to the goal around an obstacle", begin_avoid, move_avoid, solved_avoid,
                     remaining_avoid, expert_avoid},
};

}  // namespace

std::span<const ManipulationTask> moving_tasks() { return kMovingTasks; }

}  // namespace lockstep::manipulation
