#pragma once
// The section `trainer` of a config.

#include <string>
#include <vector>

#include "harness/suites/checkpoint/trainer/experiment.h"
#include "harness/suites/engine/kinds.h"
#include "harness/verdict/config/field.h"

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

nlohmann::ordered_json restarts_schema();

}  // namespace lockstep::restarts
