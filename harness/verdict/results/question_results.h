#pragma once
// What only one question's results hold: rates of detection.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/results/interval.h"

namespace lockstep {

/// A share of a detection matrix's trials.
struct DetectionRate {
  std::string what;  ///< "caught"
  int64_t hits = 0, of = 0;
  Interval interval;  ///< Clopper-Pearson
  double asked = -1;  ///< the least share of hits required, or the most allowed; negative: none
  bool at_most = false;
  bool enough = true;
};

/// The trials of one mutant, or of all pairs.
struct DetectionRow {
  std::string mutant, report;  ///< mutant: of a user's own fault "env.MISTAKE=sum"; report: the public one that it stands for, "owner/repository#number"
  int trials = 0, caught = 0;
  int exact_step = 0, exact_place = 0, exact = 0;  ///< of the caught: step, place, both
  int right_cause = 0, wrong_cause = 0;
  int by_loss_curve = 0;         ///< what a comparison of the loss curves would have found
  std::vector<int> first_found;  ///< by detector: the trials that it was the first to show
  /// Trials beside these, in exact arithmetic and without a forced step; and those of them that showed the fault at its step
  /// and place.
  int exact_trials = 0, exact_found = 0;
  bool place_asked = true;  ///< false, of a user's own fault: where it must show was not said, so that any place counts as exact
};

/// A trial that did not come out as it must.
struct DetectionMiss {
  std::string cell, wrong, planted, said, rerun;
};

/// A mutant that is not tried, or whose trials say nothing.
struct LeftOutMutant {
  std::string mutant, reason;
};

/// Which planted faults were found and named, and what clean pairs raised.
struct Detection {
  std::vector<std::string> detectors;
  std::vector<DetectionRow> rows;  ///< mutants in the table's order, then "pairs"
  std::vector<DetectionRate> rates;
  std::vector<DetectionMiss> misses;
  std::vector<LeftOutMutant> left_out;  ///< that cannot act here
  int64_t clean = 0, false_alarms = 0;
  double loss_tolerance = 0;  ///< relative, of the loss curves
  bool passed = true;         ///< every rate is enough
};

}  // namespace lockstep
