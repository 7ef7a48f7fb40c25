#pragma once
// Short ways to read matrices in tests.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <regex>
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
    else text += fmt::format(" {}{}={}", prefix, key, value.dump());
  }
  return text;
}
inline std::string differences(const RunConfig& from, const RunConfig& to) {
  return differences(nlohmann::json::parse(canonical_json(from)), nlohmann::json::parse(canonical_json(to)));
}

/// Each cell with what it is, what parts it from its reference, and that one with what it has of its own, if it is another than
/// the cell before has.
inline std::string text_of(const Matrix& matrix) {
  std::string text, last;
  for (const Cell& cell : matrix.cells) {
    std::vector<std::string> is;
    for (const auto& [key, value] : cell.settings) is.push_back(key + ": " + value);
    for (const auto& [flag, word] : {std::pair{cell.paired, "paired"},
                                     {cell.power_control, "power control"},
                                     {cell.noise, "noise"},
                                     {cell.anchor, "anchor"}})
      if (flag) is.emplace_back(word);
    for (const VerdictKind kind : cell.expected) is.push_back(fmt::format("expects {}", name_of(kind)));
    if (!cell.seeds.empty()) is.push_back(fmt::format("seeds {}", fmt::join(cell.seeds, " ")));
    const std::string reference =
        " against " + cell.reference_name + ":" + differences(RunConfig{}, cell.reference);
    text += fmt::format("{}{} ({}){}{}", text.empty() ? "" : " | ", cell.name, fmt::join(is, ", "),
                        differences(cell.reference, cell.config), reference == last ? "" : reference);
    last = reference;
  }
  return text;
}

/// Each run with what parts its config from the first one's, without hashes.
inline std::vector<std::string> texts_of(const Plan& plan) {
  std::vector<std::string> texts;
  for (const PlannedRun& run : plan.runs) {
    std::string text = fmt::format("{} {}", name_of(run.role), run.id);
    text += differences(plan.runs.front().config, run.config);
    if (!run.needs.empty()) text += fmt::format(" needs {}", fmt::join(run.needs, ", "));
    texts.push_back(std::regex_replace(text, std::regex("-[0-9a-f]{8}(?![0-9a-z])"), ""));
  }
  return texts;
}

inline std::vector<std::string> names_of(const Matrix& matrix) {
  std::vector<std::string> names;
  for (const Cell& cell : matrix.cells) names.push_back(cell.name);
  return names;
}

}  // namespace lockstep
