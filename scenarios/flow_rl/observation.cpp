#include "scenarios/flow_rl/observation.h"

namespace lockstep {

Observation observe(const manipulation::Body& body, int task, int horizon) {
  using manipulation::Point;
  Observation seen{};
  std::size_t next = 0;
  const auto add = [&](double value) { seen[next++] = value; };
  const auto add_point = [&](Point point) {
    add(point.x);
    add(point.y);
  };
  add_point(body.hand);
  add_point(body.object);
  add_point(body.goal);
  add_point(body.object - body.hand);
  add_point(body.goal - body.object);
  add_point(body.goal - body.hand);
  for (const double value : body.own) add(value);
  add(body.closed ? 1 : 0);
  add(body.held ? 1 : 0);
  add(static_cast<double>(body.step) / horizon);
  seen[next + static_cast<std::size_t>(task)] = 1;
  return seen;
}

}  // namespace lockstep
