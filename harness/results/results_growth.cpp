#include "harness/results/results_growth.h"

namespace lockstep::results_fields {
namespace {

Json layout(const Layout& l) { return {{"world_size", l.world_size}, {"rows_per_rank", l.rows_per_rank}}; }

Layout read_layout(const Json& j) {
  return {j.at("world_size").get<int>(), j.at("rows_per_rank").get<int>()};
}

Json rule(const Growth::Rule& r) {
  const MetricDifference& d = r.difference;
  return {{"cell", r.cell},
          {"rule", r.rule},
          {"exponent", exact(r.exponent)},
          {"verdict", name_of(r.verdict)},
          {"metric", d.metric},
          {"reference_mean", exact(d.reference_mean)},
          {"cell_mean", exact(d.cell_mean)},
          {"mean", exact(d.mean)},
          {"sd", exact(d.sd)},
          {"interval", interval(d.interval)},
          {"higher_is_better", d.has_direction ? Json(d.higher_is_better) : Json(nullptr)}};
}

Growth::Rule read_rule(const Json& j) {
  Growth::Rule r;
  r.cell = j.at("cell").get<std::string>();
  r.rule = j.at("rule").get<std::string>();
  r.exponent = read_exact(j.at("exponent"));
  r.verdict = read_verdict(j.at("verdict"));
  MetricDifference& d = r.difference;
  d.metric = j.at("metric").get<std::string>();
  d.reference_mean = read_exact(j.at("reference_mean"));
  d.cell_mean = read_exact(j.at("cell_mean"));
  d.mean = read_exact(j.at("mean"));
  d.sd = read_exact(j.at("sd"));
  d.interval = read_interval(j.at("interval"));
  const Json& higher = j.at("higher_is_better");
  d.has_direction = !higher.is_null();
  d.higher_is_better = higher.is_null() || higher.get<bool>();
  return r;
}

}  // namespace

Json noise_scale_to_json(const NoiseScale& n) {
  return {{"small_batch", n.small_batch},
          {"big_batch", n.big_batch},
          {"steps", n.steps},
          {"gradient_squared", exact(n.gradient_squared)},
          {"noise", exact(n.noise)},
          {"batch", exact(n.batch)},
          {"interval", interval(n.interval)},
          {"at", n.at},
          {"batch_at", list(n.batch_at, number)},
          {"caveat", n.caveat}};
}

NoiseScale noise_scale_from_json(const Json& j) {
  NoiseScale n;
  n.small_batch = j.at("small_batch").get<int>();
  n.big_batch = j.at("big_batch").get<int>();
  n.steps = j.at("steps").get<int64_t>();
  n.gradient_squared = read_exact(j.at("gradient_squared"));
  n.noise = read_exact(j.at("noise"));
  n.batch = read_exact(j.at("batch"));
  n.interval = read_interval(j.at("interval"));
  n.at = j.at("at").get<std::vector<int64_t>>();
  n.batch_at = read_list(j.at("batch_at"), read_number);
  n.caveat = j.at("caveat").get<std::string>();
  if (n.at.size() != n.batch_at.size())
    throw std::runtime_error("the noise scale by blocks of steps has lists of unequal length");
  return n;
}

Json growth_to_json(const Growth& g) {
  return {{"reference", g.reference},
          {"from", layout(g.from)},
          {"to", layout(g.to)},
          {"from_batch", g.from_batch},
          {"to_batch", g.to_batch},
          {"rules", list(g.rules, rule)},
          {"best", g.best},
          {"not_worse", g.not_worse},
          {"noise_batch", exact(g.noise_batch)},
          {"predicted_exponent", exact(g.predicted_exponent)},
          {"predicted_interval", interval(g.predicted_interval)},
          {"measured_exponent", exact(g.measured_exponent)},
          {"measured_interval", interval(g.measured_interval)},
          {"caveat", g.caveat},
          {"sentence", g.sentence}};
}

Growth growth_from_json(const Json& j) {
  Growth g;
  g.reference = j.at("reference").get<std::string>();
  g.from = read_layout(j.at("from"));
  g.to = read_layout(j.at("to"));
  g.from_batch = j.at("from_batch").get<int>();
  g.to_batch = j.at("to_batch").get<int>();
  g.rules = read_list(j.at("rules"), read_rule);
  g.best = j.at("best").get<std::string>();
  g.not_worse = j.at("not_worse").get<std::vector<std::string>>();
  g.noise_batch = read_exact(j.at("noise_batch"));
  g.predicted_exponent = read_exact(j.at("predicted_exponent"));
  g.predicted_interval = read_interval(j.at("predicted_interval"));
  g.measured_exponent = read_exact(j.at("measured_exponent"));
  g.measured_interval = read_interval(j.at("measured_interval"));
  g.caveat = j.at("caveat").get<std::string>();
  g.sentence = j.at("sentence").get<std::string>();
  return g;
}

}  // namespace lockstep::results_fields
