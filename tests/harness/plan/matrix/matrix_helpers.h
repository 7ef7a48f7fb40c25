#pragma once
// Short ways to read matrices in tests.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness/base/text.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/read_matrix.h"

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

inline std::vector<std::string> names_of(const Matrix& matrix) {
  std::vector<std::string> names;
  for (const Cell& cell : matrix.cells) names.push_back(cell.name);
  return names;
}

}  // namespace lockstep
