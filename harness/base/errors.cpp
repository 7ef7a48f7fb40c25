#include "harness/base/errors.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "harness/base/text.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostShown = 20;

std::string joined(const std::vector<ConfigProblem>& problems) {
  std::string text;
  // A line that says "and 1 more" is no shorter than the problem that it would hide.
  const std::size_t shown = problems.size() > kMostShown + 1 ? kMostShown : problems.size();
  for (std::size_t i = 0; i < shown; ++i) {
    if (!text.empty()) text += '\n';
    text += problems[i].text();
  }
  const auto more = static_cast<int64_t>(problems.size() - shown);
  if (more > 0) text += fmt::format("\n… and {} more", with_commas(more));
  return text;
}

}  // namespace

std::string ConfigProblem::text() const {
  std::string out;
  if (!file.empty()) {
    const std::string shown = clean_line(file);
    out = line > 0 ? fmt::format("{}:{}:{}: ", shown, line, column) : shown + ": ";
  }
  out += message;
  if (!suggestion.empty()) out += fmt::format("; did you mean {}?", suggestion);
  return clean_text(out);
}

ConfigError::ConfigError(std::vector<ConfigProblem> problems)
    : std::runtime_error(joined(problems)), problems_(std::move(problems)) {}

ConfigError::ConfigError(const std::string& message) : std::runtime_error(message) {
  ConfigProblem problem;
  problem.message = message;
  problems_.push_back(std::move(problem));
}

MachineError removed_meanwhile(const std::string& path) {
  return MachineError(clean_line(path) + " is gone: somebody removed it, or a folder that holds it, while lockstep used it; leave it alone until "
                                         "lockstep has ended, and run again");
}

void check_failed(const char* condition, const char* file, int line, const std::string& why) {
  // stdio alone: the heap may be what is broken.
  std::fprintf(stderr, "%s:%d: broken invariant: %s (%s)\n", file, line, why.c_str(), condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace lockstep
