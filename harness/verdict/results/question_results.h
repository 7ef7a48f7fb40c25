#pragma once
// What only one question's results hold: claims, rates of detection, calibration of the tests.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/results/interval.h"

namespace lockstep {

/// waiting: for a part of the program that is not there yet.
enum class ClaimState { holds, does_not_hold, undecided, not_testable, waiting };

/// One condition of a claim, with its figures.
struct ConditionResult {
  std::string text;                          ///< what must be so, in words
  std::string figures;                       ///< what was found, in words
  ClaimState state = ClaimState::undecided;  ///< never waiting
  double value = 0;                          ///< NaN where the answer is a word
  Interval interval;                         ///< both ends the value where it has no spread
  std::vector<std::string> cells, runs;      ///< that show it: names, ids of their first seed's runs
};

struct ClaimResult {
  std::string id, told;
  ClaimState state = ClaimState::undecided;
  std::optional<ClaimState> expected;
  bool as_expected = true;
  std::string reason;  ///< why it cannot be tested here, or what stands in the way
  std::vector<ConditionResult> conditions;
  std::vector<std::string> shows;  ///< cells
};

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

/// Power of the equivalence test at one design, simulated and by the formula.
struct PowerPoint {
  int n = 0;
  double sd = 0, true_difference = 0;  ///< in margins
  double measured = 0;
  Interval interval;  ///< Clopper-Pearson
  double theory = 0;
};

/// What a test does with differences of another shape than normal whose middle lies exactly at the margin.
struct ShapeRate {
  std::string shape;           ///< "log-normal", "one seed in 20 collapses"
  OutcomeTest test = OutcomeTest::t;
  std::string at_margin;       ///< "mean" or "median": which middle lies there
  bool promised = false;       ///< the test promises to keep alpha there
  double equivalent = 0;       ///< largest share that was called equivalent over all numbers of pairs
  double looks = 0;            ///< the same of a sequential comparison
  double unwarned = 0;         ///< largest share that was called so without a warning of skewness
};

/// Do the tests keep their promises: error rates and coverage with a difference planted.
struct Calibration {
  std::vector<DetectionRate> rates;
  std::vector<PowerPoint> power;
  int pool_runs = 0;
  bool passed = true;
  double pool_mean = 0, pool_sd = 0;  ///< of the primary metric over the pool
  /// Of comparisons whose true difference is the margin: the largest share that was called equivalent, and
  /// the share that may be.
  double worst_equivalent = 0, equivalent_allowed = 0;
  std::vector<ShapeRate> shapes;
};

}  // namespace lockstep
