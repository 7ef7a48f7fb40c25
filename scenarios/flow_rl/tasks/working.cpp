// Tasks in which the hand works a thing that stays where it is: press, drawer, turn.

#include <algorithm>
#include <array>

#include "scenarios/flow_rl/tasks/tasks.h"

namespace lockstep::manipulation {
namespace {

// --- press: a closed hand on the button for three steps; own[0]: steps so far ---

void begin_press(Body& body, Draws& draws) {
  body.object = {draws.uniform(0.1, 0.8), draws.uniform(-0.8, 0.8)};
  body.goal = body.object;
}
void move_press(Body& body) {
  const bool presses = body.closed && distance(body.hand, body.object) < 0.08;
  body.own[0] = presses ? body.own[0] + 1 : 0;
}
bool solved_press(const Body& body) { return body.own[0] >= 3; }
double remaining_press(const Body& body) {
  return distance(body.hand, body.object) + 0.15 * std::max(0.0, 3 - body.own[0]);
}
Action expert_press(const Body& body) {
  return towards(body.hand, body.object, distance(body.hand, body.object) < 0.07 ? 1 : -1);
}

// --- drawer: grasp the handle, then pull it to the left; it runs along its line; own[0]: where it began ---

void begin_drawer(Body& body, Draws& draws) {
  body.object = {draws.uniform(0.2, 0.7), draws.uniform(-0.6, 0.6)};
  body.own[0] = body.object.x;
  body.goal = {body.object.x - 0.4, body.object.y};
}
void move_drawer(Body& body) {
  if (!body.closed) {
    body.held = false;
  } else if (distance(body.hand, body.object) < kReach) {
    body.held = true;
  }
  if (!body.held) return;
  if (std::abs(body.hand.y - body.object.y) > 0.12) {
    body.held = false;  // it slips off
    return;
  }
  body.object.x = std::clamp(body.hand.x, body.goal.x - 0.1, body.own[0]);
}
bool solved_drawer(const Body& body) { return body.object.x <= body.goal.x + 0.05; }
double remaining_drawer(const Body& body) {
  return std::max(0.0, body.object.x - body.goal.x) + (body.held ? 0 : 0.5 * distance(body.hand, body.object));
}
Action expert_drawer(const Body& body) {
  if (!body.held) return towards(body.hand, body.object, distance(body.hand, body.object) < 0.07 ? 1 : -1);
  return towards(body.hand, {body.goal.x - 0.1, body.object.y}, 1);
}

// --- turn: grasp the end of a lever, then turn it about the goal, its axle, from the right to above it.
// own[0]: the lever's length; own[1], own[2]: its direction ---

void begin_turn(Body& body, Draws& draws) {
  body.goal = {draws.uniform(-0.2, 0.3), draws.uniform(-0.5, 0.1)};
  body.own = {draws.uniform(0.25, 0.4), 1, 0};
  body.object = body.goal + Point{body.own[0], 0};
}
void move_turn(Body& body) {
  body.held = body.closed && distance(body.hand, body.object) < 0.17;
  if (!body.held) return;
  const Point arm = body.hand - body.goal;
  const double far = length(arm);
  if (far < 1e-6 || arm.y < 0) return;  // it turns up alone
  body.own[1] = arm.x / far;
  body.own[2] = arm.y / far;
  body.object = body.goal + arm * (body.own[0] / far);
}
bool solved_turn(const Body& body) { return body.own[2] > 0.9; }
double remaining_turn(const Body& body) {
  return std::max(0.0, 0.92 - body.own[2]) * 0.7 + (body.held ? 0 : 0.5 * distance(body.hand, body.object));
}
Action expert_turn(const Body& body) {
  const Point lever{body.own[1], body.own[2]};
  if (!body.held) {
    return towards(body.hand, body.object, distance(body.hand, body.object) < 0.12 ? 1 : -1);
  }
  const Point next = body.goal + lever * body.own[0] + Point{-lever.y, lever.x} * 0.1;
  const Point arm = next - body.goal;
  return towards(body.hand, body.goal + arm * (body.own[0] / std::max(length(arm), 1e-9)), 1);
}

constexpr std::array kWorkingTasks = {
    ManipulationTask{"press", "the hand presses a button", begin_press, move_press, solved_press, remaining_press,
                     expert_press},
    ManipulationTask{"drawer", "the hand pulls a drawer open", begin_drawer, move_drawer, solved_drawer, remaining_drawer,
                     expert_drawer},
    ManipulationTask{"turn", "the hand turns a lever about its axle", begin_turn, move_turn, solved_turn, remaining_turn,
                     expert_turn},
};

}  // namespace

std::span<const ManipulationTask> working_tasks() { return kWorkingTasks; }

}  // namespace lockstep::manipulation
