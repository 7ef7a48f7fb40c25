#include "harness/results/results_learning.h"

namespace lockstep {
namespace {

using namespace results_fields;

Json estimate(const Estimate& e) {
  return {{"what", e.what},
          {"method", e.method},
          {"value", exact(e.value)},
          {"interval", interval(e.interval)}};
}

Estimate read_estimate(const Json& j) {
  return {j.at("what").get<std::string>(), j.at("method").get<std::string>(), read_exact(j.at("value")),
          read_interval(j.at("interval"))};
}

Json curve_difference(const CurveDifference& c) {
  return {{"metric", c.metric},
          {"margin", exact(c.margin)},
          {"steps", c.steps},
          {"mean", list(c.mean, number)},
          {"low", list(c.low, number)},
          {"high", list(c.high, number)},
          {"first_leaves", c.first_leaves},
          {"first_beyond", c.first_beyond},
          {"note", c.note}};
}

CurveDifference read_curve_difference(const Json& j) {
  CurveDifference c;
  c.metric = j.at("metric").get<std::string>();
  c.margin = read_exact(j.at("margin"));
  c.steps = read_list(j.at("steps"), [](const Json& step) { return step.get<int64_t>(); });
  c.mean = read_list(j.at("mean"), read_number);
  c.low = read_list(j.at("low"), read_number);
  c.high = read_list(j.at("high"), read_number);
  const std::size_t size = c.steps.size();
  if (c.mean.size() != size || c.low.size() != size || c.high.size() != size) {
    throw std::runtime_error("the difference of the curves of " + c.metric + " has lists of unequal length");
  }
  c.first_leaves = j.at("first_leaves").get<int64_t>();
  c.first_beyond = j.at("first_beyond").get<int64_t>();
  c.note = j.at("note").get<std::string>();
  return c;
}

Json target_reach(const TargetReach& t) {
  return {{"target", exact(t.target)},
          {"n", t.n},
          {"cell_reached", t.cell_reached},
          {"reference_reached", t.reference_reached},
          {"cell_median", number(t.cell_median)},
          {"reference_median", number(t.reference_median)},
          {"sooner", t.sooner},
          {"later", t.later},
          {"tied", t.tied},
          {"p", exact(t.p)}};
}

TargetReach read_target_reach(const Json& j) {
  TargetReach t;
  t.target = read_exact(j.at("target"));
  t.n = j.at("n").get<int>();
  t.cell_reached = j.at("cell_reached").get<int>();
  t.reference_reached = j.at("reference_reached").get<int>();
  t.cell_median = read_number(j.at("cell_median"));
  t.reference_median = read_number(j.at("reference_median"));
  t.sooner = j.at("sooner").get<int>();
  t.later = j.at("later").get<int>();
  t.tied = j.at("tied").get<int>();
  t.p = read_exact(j.at("p"));
  return t;
}

}  // namespace

void write_learning(const Outcome& o, Json& statistics) {
  statistics["sd_upper"] = exact(o.sd_upper);
  statistics["power_half"] = exact(o.power_half);
  statistics["seeds_needed_half"] = o.seeds_needed_half;
  statistics["p_equivalent"] = exact(o.p_equivalent);
  statistics["p_different"] = exact(o.p_different);
  statistics["p_holm"] = exact(o.p_holm);
  statistics["estimates"] = list(o.estimates, estimate);
  statistics["curves"] = list(o.curves, curve_difference);
  statistics["target"] = optional(o.target, target_reach);
  statistics["notes"] = o.notes;
}

void read_learning(const Json& statistics, Outcome& o) {
  o.sd_upper = read_exact(statistics.at("sd_upper"));
  o.power_half = read_exact(statistics.at("power_half"));
  o.seeds_needed_half = statistics.at("seeds_needed_half").get<int>();
  o.p_equivalent = read_exact(statistics.at("p_equivalent"));
  o.p_different = read_exact(statistics.at("p_different"));
  o.p_holm = read_exact(statistics.at("p_holm"));
  o.estimates = read_list(statistics.at("estimates"), read_estimate);
  o.curves = read_list(statistics.at("curves"), read_curve_difference);
  o.target = read_optional(statistics.at("target"), read_target_reach);
  o.notes = read_list(statistics.at("notes"), [](const Json& note) { return note.get<std::string>(); });
}

}  // namespace lockstep
