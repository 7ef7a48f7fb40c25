#pragma once

#include <string>
#include <vector>

#include "harness/plan/config/field.h"
#include "harness/suites/engine/suite.h"

// The suite `faults`: programs with one fault each and their control runs, on real ranks, watched as lockstep watches its
// own runs (docs/faults.md).

namespace lockstep {

const SuiteKind& faults_suite();

}  // namespace lockstep

// The section `faults` of a config.

namespace lockstep::faults {

struct FaultsConfig {
  std::vector<std::string> tries;  ///< of kTries
  double threshold_s = 0.5;        ///< T of the suite
  int64_t control_repeats = 1;        ///< how often each control run runs
  int64_t dead = 200;              ///< kills of one of eight ranks
  int64_t hung = 200;              ///< stops of one of three
  double hung_threshold_s = 1;
  int64_t steady_steps = 10000;
  double steady_threshold_s = 0.05;
  double straggle_share = 0.01;    ///< of the steps, at which a rank is late by half the threshold
  double deadline_s = 30;
  int64_t seed = 0;
  std::string mistake;             ///< of the bench, to see it found; empty: none
};

/// What can be tried, in the order in which it is.
inline constexpr std::string_view kTries[] = {"wrong", "control", "dead", "hung", "steady"};

/// Reads the section. Reports every problem.
FaultsConfig read_faults_config(const SuiteSource& source, Problems& problems);

nlohmann::ordered_json faults_schema();

}  // namespace lockstep::faults
