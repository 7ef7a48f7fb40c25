#include "harness/results/results_calibration.h"

namespace lockstep::results_fields {
namespace {

Json look_to_json(const Look& look) {
  return {{"n", look.n},
          {"information", number(look.information)},
          {"alpha_spent", exact(look.alpha_spent)},
          {"alpha_here", exact(look.alpha_here)},
          {"verdict", name_of(look.verdict)}};
}

Look look_from_json(const Json& j) {
  return {j.at("n").get<int>(), read_number(j.at("information")), read_exact(j.at("alpha_spent")),
          read_exact(j.at("alpha_here")), read_verdict(j.at("verdict"))};
}

Json rate_to_json(const DetectionRate& r) {
  return {{"what", r.what},
          {"hits", r.hits},
          {"of", r.of},
          {"interval", interval(r.interval)},
          {"asked", r.asked < 0 ? Json(nullptr) : Json(r.asked)},
          {"at_most", r.at_most},
          {"enough", r.enough}};
}

DetectionRate rate_from_json(const Json& j) {
  const Json& asked = j.at("asked");
  return {j.at("what").get<std::string>(),
          j.at("hits").get<int64_t>(),
          j.at("of").get<int64_t>(),
          read_interval(j.at("interval")),
          asked.is_null() ? -1 : asked.get<double>(),
          j.at("at_most").get<bool>(),
          j.at("enough").get<bool>()};
}

Json power_to_json(const PowerPoint& p) {
  return {{"n", p.n},
          {"sd", number(p.sd)},
          {"true_difference", number(p.true_difference)},
          {"measured", number(p.measured)},
          {"interval", interval(p.interval)},
          {"theory", exact(p.theory)}};
}

PowerPoint power_from_json(const Json& j) {
  return {
      j.at("n").get<int>(),          read_number(j.at("sd")),         read_number(j.at("true_difference")),
      read_number(j.at("measured")), read_interval(j.at("interval")), read_exact(j.at("theory"))};
}

}  // namespace

Json sequential_to_json(const Sequential& s) {
  return {{"most", s.most}, {"ended", s.ended}, {"looks", list(s.looks, look_to_json)}};
}

Sequential sequential_from_json(const Json& j) {
  return {j.at("most").get<int>(), read_list(j.at("looks"), look_from_json),
          j.at("ended").get<std::string>()};
}

Json calibration_to_json(const Calibration& c) {
  return {{"passed", c.passed},
          {"pool_runs", c.pool_runs},
          {"pool_mean", exact(c.pool_mean)},
          {"pool_sd", exact(c.pool_sd)},
          {"rates", list(c.rates, rate_to_json)},
          {"power", list(c.power, power_to_json)}};
}

Calibration calibration_from_json(const Json& j) {
  Calibration c;
  c.passed = j.at("passed").get<bool>();
  c.pool_runs = j.at("pool_runs").get<int>();
  c.pool_mean = read_exact(j.at("pool_mean"));
  c.pool_sd = read_exact(j.at("pool_sd"));
  c.rates = read_list(j.at("rates"), rate_from_json);
  c.power = read_list(j.at("power"), power_from_json);
  return c;
}

}  // namespace lockstep::results_fields
