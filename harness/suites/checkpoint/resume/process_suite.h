#pragma once
// What the experiments with real processes share: a trial runs in a fork server's process, and its outcome comes back as
// text.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/base/errors.h"
#include "harness/suites/checkpoint/resume/fork_server.h"
#include "harness/suites/checkpoint/resume/processes.h"
#include "harness/suites/checkpoint/resume/resume_config.h"
#include "harness/suites/engine/suite.h"

namespace lockstep::resume {

/// What came of one trial, beside its cases: numbers that are summed over trials, and those of which the greatest
/// counts.
struct TrialDone {
  std::vector<CaseResult> cases;
  std::map<std::string, int64_t> sums, greatest;
  void add(std::string outcome, CaseVerdict verdict, std::string sentence = "",
           std::vector<TimelineStep> timeline = {});
};

/// Of plans, each of which has a `trial`, the one of that name.
template <class Plans>
const auto& plan_named(const Plans& plans, const std::string& name) {
  const auto found = std::ranges::find_if(plans, [&](const auto& plan) { return plan.trial.name == name; });
  LOCKSTEP_CHECK(found != plans.end(), "a trial that was planned is known");
  return *found;
}

class ProcessSuite : public Suite {
 public:
  explicit ProcessSuite(const ResumeConfig& config) : config_(config) {}
  /// Plans, and forks a fork server for each slot, before there are threads.
  std::vector<Trial> trials(const SuiteRun& run) final;

 protected:
  virtual std::vector<Trial> planned() = 0;
  /// In a fork server's process. `folder` is empty, and this trial's own.
  virtual TrialDone run_trial(const std::string& name, const std::string& folder, Board& board) = 0;

  toy::RunOptions options_of(const std::string& folder) const;
  const ResumeConfig config_;

 private:
  std::vector<std::unique_ptr<ForkServer>> fork_servers_;
};

}  // namespace lockstep::resume
