#pragma once
// What every simulated manipulation task has: a hand in the plane with a gripper, an object, a goal and a few numbers of the
// task's own. Plain kinematics in double: sums, products, quotients and square roots alone, so that bits are the same everywhere.

#include <array>
#include <cmath>
#include <cstdint>

#include "harness/base/hashing.h"
#include "harness/base/keyed_draws.h"
#include "harness/base/normal.h"

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

}  // namespace lockstep::manipulation
