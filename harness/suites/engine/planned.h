#pragma once
// Trials that were planned, found by their names when they run.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/base/errors.h"
#include "harness/suites/engine/suite.h"

namespace lockstep {

/// A trial that carries what it runs.
struct Planned {
  Trial trial;
  std::function<std::vector<CaseResult>()> run;  ///< called by any thread
};

/// Those of a suite, each with a name of its own.
class PlannedTrials {
 public:
  void add(std::vector<Planned> more);
  /// In the order in which they were added.
  const std::vector<Trial>& trials() const { return trials_; }
  /// Runs what its trials carry; for as long as this stands.
  std::unique_ptr<SuiteWorker> worker() const;

 private:
  std::vector<Trial> trials_;
  std::map<std::string, std::function<std::vector<CaseResult>()>, std::less<>> runs_;
};

/// Of a suite's own plans, each of which has a `trial`, the one of that name.
template <class Plans>
const auto& plan_named(const Plans& plans, const std::string& name) {
  const auto found = std::ranges::find_if(plans, [&](const auto& plan) { return plan.trial.name == name; });
  LOCKSTEP_CHECK(found != plans.end(), "a trial that was planned is known");
  return *found;
}

/// Counts a case, or several, with those of its trial that ended alike. False: none did yet.
bool count_alike(std::vector<CaseResult>& cases, const std::string& outcome, CaseVerdict verdict, int64_t more = 1);

}  // namespace lockstep
