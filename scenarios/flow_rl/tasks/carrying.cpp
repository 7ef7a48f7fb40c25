// Tasks in which the hand grasps the object and carries it: place, sort, insert.

#include <algorithm>
#include <array>

#include "scenarios/flow_rl/tasks/tasks.h"

namespace lockstep::manipulation {
namespace {

/// A closed hand takes what it touches along; an open one lets it go.
void carry(Body& body) {
  if (!body.closed) {
    body.held = false;
  } else if (distance(body.hand, body.object) < kReach) {
    body.held = true;
  }
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

constexpr std::array kCarryingTasks = {
    ManipulationTask{"place", "the hand carries an object to the goal and lets it go", begin_place, carry, solved_place,
                     remaining_place, expert_carry},
    ManipulationTask{"sort", "the hand carries an object to the bin of its colour", begin_sort, carry, solved_sort,
                     remaining_carry, expert_carry},
    ManipulationTask{"insert", "the hand brings a peg through a slot in a wall", begin_insert, move_insert, solved_insert,
                     remaining_insert, expert_insert},
};

}  // namespace

std::span<const ManipulationTask> carrying_tasks() { return kCarryingTasks; }

}  // namespace lockstep::manipulation
