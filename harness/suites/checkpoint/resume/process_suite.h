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
#include "harness/suites/engine/mutation_check.h"
#include "harness/suites/engine/suite.h"

namespace lockstep::resume {

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
  virtual void run_trial(const std::string& name, const std::string& folder, Board& board, Cases& cases) = 0;

  toy::RunOptions options_of(const std::string& folder) const;
  const ResumeConfig config_;

 private:
  std::vector<std::unique_ptr<ForkServer>> fork_servers_;
};

}  // namespace lockstep::resume
