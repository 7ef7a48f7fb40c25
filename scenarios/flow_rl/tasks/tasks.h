#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "harness/base/json.h"
#include "harness/base/numbers.h"

// What every simulated manipulation task has: a hand in the plane with a gripper, an object, a goal and a few numbers of the
// task's own. Plain kinematics in double: sums, products, quotients and square roots alone, so that bits are the same everywhere.

namespace lockstep::manipulation {

/// A place or a movement in the plane, whose sides are 2 long around 0.
struct Point {
  double x = 0, y = 0;
  Point operator+(Point other) const { return {x + other.x, y + other.y}; }
  Point operator-(Point other) const { return {x - other.x, y - other.y}; }
  Point operator*(double factor) const { return {x * factor, y * factor}; }
};
inline double length(Point point) { return std::sqrt(point.x * point.x + point.y * point.y); }
inline double distance(Point a, Point b) { return length(a - b); }

/// Of one simulated step, each in [-1, 1]: velocity of the hand, and the gripper (closed above 0).
struct Action {
  double x = 0, y = 0, grip = -1;
};

inline constexpr double kSpeed = 0.12;        ///< of the hand in a step at full velocity
inline constexpr double kReach = 0.1;         ///< the hand touches or grasps what is as near
inline constexpr int kOwnNumbers = 3;

struct Body {
  Point hand, object, goal;
  bool closed = false, held = false, hit = false;
  std::array<double, kOwnNumbers> own{};  ///< what it is, the task knows
  int step = 0;                           ///< taken so far
  double cost = 0;                        ///< the second score: effort and collisions so far
};

/// Numbers of one stream, one after the other.
class Draws {
 public:
  explicit Draws(uint64_t key) : draws_(key) {}
  double uniform(double low, double high) { return low + (high - low) * unit_interval(draws_.bits(count_++)); }
  double normal() {
    const double radius = unit_interval(draws_.bits(count_++));
    return standard_normal(radius, unit_interval(draws_.bits(count_++)));
  }
  uint64_t count() const { return count_; }

 private:
  KeyedDraws draws_;
  uint64_t count_ = 0;
};

// The suite of simulated manipulation tasks, behind one table.

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

/// At most full speed towards a place; slower when it is near.
Action towards(Point from, Point to, double grip);

}  // namespace lockstep::manipulation
