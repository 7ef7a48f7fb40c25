#include "harness/plan/errors.h"

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
  std::string text = file;
  if (line > 0) text += ":" + std::to_string(line);
  if (line > 0 && column > 0) text += ":" + std::to_string(column);
  if (!text.empty()) text += ": ";
  text += message;
  if (!suggestion.empty()) text += "; did you mean " + suggestion + "?";
  return text;
}

ConfigError::ConfigError(std::vector<ConfigProblem> problems)
    : std::runtime_error(joined(problems)), problems_(std::move(problems)) {}

ConfigError::ConfigError(const std::string& message)
    : ConfigError(std::vector{ConfigProblem{"", 0, 0, message, ""}}) {}

void check_failed(const char* condition, const char* file, int line, const std::string& why) {
  std::fprintf(stderr, "lockstep: broken invariant at %s:%d: %s (%s)\n", file, line, why.c_str(), condition);
  std::abort();
}

}  // namespace lockstep
