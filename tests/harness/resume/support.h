#pragma once
// Runs the laboratory of resuming as `lockstep run` does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/base/clock.h"
#include "harness/laboratory/run_trials.h"
#include "harness/resume/resume_config.h"
#include "tests/support/temp_folder.h"

namespace lockstep::resume::support {

inline LaboratoryResult run(Laboratory& laboratory, const std::string& only = "") {
  const lockstep::support::TempFolder folder;
  const int never = 0;
  LaboratoryRun run;
  run.out_dir = folder.path();
  run.jobs = 2;
  run.stop_requested = &never;
  run.say = [](const std::string&) {};
  TrialOptions options;
  options.only = only;
  options.clock = monotonic_s;
  return run_trials(laboratory, run, options).result;
}

inline std::string findings_of(const LaboratoryResult& result) {
  std::string text;
  for (const LaboratoryFinding& each : result.findings)
    text += each.trial + ": " + each.outcome + ": " + each.sentence + "\n";
  return text;
}

inline int64_t cases_of(const LaboratoryResult& result, const std::string& failure, const std::string& outcome) {
  int64_t cases = 0;
  for (const LaboratoryCount& row : result.table) {
    if (row.failure == failure && row.outcome == outcome) cases += row.cases;
  }
  return cases;
}

}  // namespace lockstep::resume::support
