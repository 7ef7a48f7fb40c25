#include "harness/verdict/config/problems.h"

#include <algorithm>
#include <tuple>

namespace lockstep {

int Problems::add_source(std::string name) {
  sources_.push_back(std::move(name));
  return static_cast<int>(sources_.size()) - 1;
}

void Problems::add(const Place& place, std::string message, std::string_view suggestion) {
  found_.push_back({place, std::move(message), std::string(suggestion)});
}

void Problems::throw_if_any() const {
  if (!found_.empty()) throw ConfigError(list());
}

std::vector<ConfigProblem> Problems::list() const {
  std::vector<Found> sorted = found_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Found& a, const Found& b) {
    return std::tie(a.place.source, a.place.line, a.place.column) <
           std::tie(b.place.source, b.place.line, b.place.column);
  });
  std::vector<ConfigProblem> problems;
  for (Found& found : sorted) {
    ConfigProblem problem;
    problem.file = sources_[static_cast<std::size_t>(found.place.source)];
    problem.line = found.place.line;
    problem.column = found.place.column;
    problem.message = std::move(found.message);
    problem.suggestion = std::move(found.suggestion);
    problems.push_back(std::move(problem));
  }
  return problems;
}

}  // namespace lockstep
