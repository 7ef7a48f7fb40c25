#include "harness/plan/errors.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace lockstep {
namespace {

std::string joined(const std::vector<ConfigProblem>& problems) {
  std::string text;
  for (const ConfigProblem& problem : problems) {
    if (!text.empty()) text += '\n';
    text += problem.text();
  }
  return text;
}

}  // namespace

std::string ConfigProblem::text() const {
  std::string out;
  if (!file.empty()) {
    out = line > 0 ? fmt::format("{}:{}:{}: ", file, line, column) : fmt::format("{}: ", file);
  }
  out += message;
  if (!suggestion.empty()) out += fmt::format("; did you mean {}?", suggestion);
  return out;
}

ConfigError::ConfigError(std::vector<ConfigProblem> problems)
    : std::runtime_error(joined(problems)), problems_(std::move(problems)) {}

ConfigError::ConfigError(const std::string& message) : std::runtime_error(message) {
  ConfigProblem problem;
  problem.message = message;
  problems_.push_back(std::move(problem));
}

void check_failed(const char* condition, const char* file, int line, const std::string& why) {
  // stdio alone: the heap may be what is broken.
  std::fprintf(stderr, "%s:%d: broken invariant: %s (%s)\n", file, line, why.c_str(), condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace lockstep
