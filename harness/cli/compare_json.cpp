#include "harness/cli/compare_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/base/json_number.h"
#include "harness/cli/commands.h"

namespace lockstep {

nlohmann::json differences_json(const std::vector<QuestionDifference>& differences) {
  nlohmann::json list = nlohmann::json::array();
  for (const QuestionDifference& d : differences)
    list.push_back({{"what", d.what}, {"reference", d.a}, {"cell", d.b}});
  return list;
}

int worst_exit_code(const std::vector<int>& codes) {
  for (const int code : {kExitUnexpected, kExitUndecided}) {
    if (std::ranges::find(codes, code) != codes.end()) return code;
  }
  return kExitAsExpected;
}

nlohmann::json interval_json(const Interval& interval) {
  return {
      {"low", json_number(interval.low)}, {"high", json_number(interval.high)}, {"level", interval.level}};
}

}  // namespace lockstep
