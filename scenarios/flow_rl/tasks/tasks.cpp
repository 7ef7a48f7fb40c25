#include "scenarios/flow_rl/tasks/tasks.h"

#include <algorithm>
#include <utility>

namespace lockstep::manipulation {

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

namespace {

// Tasks in which the hand grasps the object and carries it: place, sort, insert.

/// A closed hand takes what it touches; an open one lets it go.
void grasp(Body& body) {
  if (!body.closed) {
    body.held = false;
  } else if (distance(body.hand, body.object) < kReach) {
    body.held = true;
  }
}
void carry(Body& body) {
  grasp(body);
  if (body.held) body.object = body.hand;
}

double remaining_carry(const Body& body) {
  return distance(body.object, body.goal) + (body.held ? 0 : 0.5 * distance(body.hand, body.object));
}

Action expert_carry(const Body& body) {
  if (!body.held) return towards(body.hand, body.object, distance(body.hand, body.object) < 0.06 ? 1 : -1);
  return towards(body.hand, body.goal, distance(body.hand, body.goal) < 0.05 ? -1 : 1);
}

void begin_object(Body& body, Draws& draws) { body.object = {draws.uniform(-0.3, 0.1), draws.uniform(-0.5, 0.5)}; }

// --- place: the object lies at the goal, let go ---

void begin_place(Body& body, Draws& draws) {
  begin_object(body, draws);
  body.goal = {draws.uniform(0.3, 0.7), draws.uniform(-0.6, 0.6)};
}
bool solved_place(const Body& body) { return !body.held && distance(body.object, body.goal) < 0.1; }
double remaining_place(const Body& body) {
  const double far = remaining_carry(body);
  return body.held ? far + 0.1 : far;
}

// --- sort: into the upper or the lower bin, by the object's colour, own[0] ---

void begin_sort(Body& body, Draws& draws) {
  begin_object(body, draws);
  body.own[0] = draws.uniform(0, 1) < 0.5 ? -1 : 1;
  body.goal = {0.45, 0.5 * body.own[0]};
}
bool solved_sort(const Body& body) {
  return std::abs(body.object.x - body.goal.x) < 0.15 && std::abs(body.object.y - body.goal.y) < 0.15;
}

// --- insert: a peg in the hand goes into a slot of the wall at own[0], which it meets outside of it ---

constexpr double kSlot = 0.05;

void begin_insert(Body& body, Draws& draws) {
  body.own[0] = draws.uniform(0.3, 0.5);
  body.goal = {body.own[0] + 0.12, draws.uniform(-0.5, 0.5)};
  body.object = body.hand;
  body.held = true;
}
void move_insert(Body& body) {
  const double wall = body.own[0];
  if (body.hand.x > wall && std::abs(body.hand.y - body.goal.y) > kSlot) {
    // In the slot it slides along the side; before the wall it goes no further.
    if (body.object.x > wall) {
      body.hand.y = body.object.y;
    } else {
      body.hand.x = wall;
      body.cost += 0.05;
    }
  }
  body.object = body.hand;
}
bool solved_insert(const Body& body) { return body.object.x >= body.goal.x; }
double remaining_insert(const Body& body) {
  return std::max(0.0, body.goal.x - body.object.x) + 1.5 * std::max(0.0, std::abs(body.object.y - body.goal.y) - 0.5 * kSlot);
}
Action expert_insert(const Body& body) {
  if (std::abs(body.hand.y - body.goal.y) > 0.4 * kSlot && body.hand.x > body.own[0] - 0.15 && body.hand.x <= body.own[0]) {
    return towards(body.hand, {body.own[0] - 0.1, body.goal.y}, 1);
  }
  const bool before = body.hand.x < body.own[0] - 0.15;
  return towards(body.hand, {before ? body.own[0] - 0.1 : body.goal.x + 0.1, body.goal.y}, 1);
}

// Tasks of the hand alone: reach, follow, avoid.

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

// Tasks in which the hand pushes the object, a disk: push, slide, sweep.

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

// Tasks in which the hand works a thing that stays where it is: press, drawer, turn.

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
  grasp(body);
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

constexpr ManipulationTask kTasks[] = {
    {"reach", "the hand comes to the goal and stays there",
     begin_reach, move_reach, solved_reach, remaining_reach, expert_reach},
    {"follow", "the hand stays with a goal that moves",
     begin_follow, move_follow, solved_follow, remaining_follow, expert_follow},
    {"avoid", "the hand comes to the goal around an obstacle",
     begin_avoid, move_avoid, solved_avoid, remaining_avoid, expert_avoid},
    {"push", "the hand pushes a disk to the goal",
     begin_push, push_away, solved_push, remaining_push, expert_push},
    {"slide", "the hand pushes a block along a rail to a mark",
     begin_slide, move_slide, solved_slide, remaining_slide, expert_slide},
    {"sweep", "the hand pushes a disk over a line",
     begin_sweep, push_away, solved_sweep, remaining_sweep, expert_sweep},
    {"place", "the hand carries an object to the goal and lets it go",
     begin_place, carry, solved_place, remaining_place, expert_carry},
    {"sort", "the hand carries an object to the bin of its colour",
     begin_sort, carry, solved_sort, remaining_carry, expert_carry},
    {"insert", "the hand brings a peg through a slot in a wall",
     begin_insert, move_insert, solved_insert, remaining_insert, expert_insert},
    {"press", "the hand presses a button",
     begin_press, move_press, solved_press, remaining_press, expert_press},
    {"drawer", "the hand pulls a drawer open",
     begin_drawer, move_drawer, solved_drawer, remaining_drawer, expert_drawer},
    {"turn", "the hand turns a lever about its axle",
     begin_turn, move_turn, solved_turn, remaining_turn, expert_turn},
};

}  // namespace

std::span<const ManipulationTask> manipulation_tasks() { return kTasks; }

}  // namespace lockstep::manipulation
