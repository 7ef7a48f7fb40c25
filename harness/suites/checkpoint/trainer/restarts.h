#pragma once

#include <string>
#include <vector>

#include "harness/plan/config/field.h"
#include "harness/suites/checkpoint/trainer/resumes.h"
#include "harness/suites/engine/suite.h"

// The suite `trainer`: real runs of this project's own trainers, with real ranks, that are killed, told to stop and
// started again.

namespace lockstep {

const SuiteKind& trainer_suite();

}  // namespace lockstep

// The section `trainer` of a config.

namespace lockstep::restarts {

struct RestartsConfig {
  std::string matrix, cell;
  std::vector<std::string> set;    ///< key=value, as --set of the matrix
  std::vector<std::string> tries;  ///< names of experiment_kinds()
  double deadline_s = 60;
  Subject subject;
};

/// Reads the section and the cell that it names. Reports every problem.
RestartsConfig read_restarts_config(const SuiteSource& source, Problems& problems);

}  // namespace lockstep::restarts
