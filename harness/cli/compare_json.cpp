#include "harness/cli/compare_json.h"

#include <nlohmann/json.hpp>

#include "harness/base/json_number.h"

namespace lockstep {

nlohmann::json differences_json(const std::vector<QuestionDifference>& differences) {
  nlohmann::json list = nlohmann::json::array();
  for (const QuestionDifference& d : differences)
    list.push_back({{"what", d.what}, {"reference", d.a}, {"cell", d.b}});
  return list;
}

nlohmann::json interval_json(const Interval& interval) {
  return {
      {"low", json_number(interval.low)}, {"high", json_number(interval.high)}, {"level", interval.level}};
}

}  // namespace lockstep
