#pragma once
// Short ways to read matrices in tests.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan.h"
#include "harness/plan/matrix/plan_history.h"
#include "harness/plan/matrix/read_matrix.h"
#include "tests/support/said.h"

namespace lockstep {

/// The least that a mechanism matrix needs; tests append to it.
inline const std::string kHead =
    "# Is it so?\n"
    "name: tiny\n"
    "reference: {layout: 1x24}\n";

inline Matrix parse(const std::string& text, const Overrides& overrides = {}) {
  return parse_matrix(text, "m.yaml", overrides);
}

/// Every problem's text; empty if the matrix is fine.
inline std::vector<std::string> problems_of(const std::string& text, const Overrides& overrides = {}) {
  std::vector<std::string> out;
  try {
    parse(text, overrides);
  } catch (const ConfigError& error) {
    for (const ConfigProblem& problem : error.problems()) out.push_back(problem.text());
  }
  return out;
}

inline Overrides set(std::vector<std::string> options) {
  Overrides overrides;
  overrides.set = std::move(options);
  return overrides;
}

inline Overrides only(std::string expression) {
  Overrides overrides;
  overrides.only = std::move(expression);
  return overrides;
}

/// Keys whose values differ, with those of the second.
inline std::string differences(const nlohmann::json& from, const nlohmann::json& to, const std::string& prefix = "") {
  std::string text;
  for (const auto& [key, value] : to.items()) {
    if (from.contains(key) && from[key] == value) continue;
    if (value.is_object()) text += differences(from.value(key, nlohmann::json::object()), value, prefix + key + ".");
    else text += " " + prefix + key + "=" + value.dump();
  }
  return text;
}
inline std::string differences(const RunConfig& from, const RunConfig& to) {
  return differences(nlohmann::json::parse(canonical_json(from)), nlohmann::json::parse(canonical_json(to)));
}

inline std::vector<std::string> names_of(const Matrix& matrix) {
  std::vector<std::string> names;
  for (const Cell& cell : matrix.cells) names.push_back(cell.name);
  return names;
}

}  // namespace lockstep
