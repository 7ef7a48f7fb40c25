#pragma once
// One rank's part in a case: rewards, rows, advantages, weights, normaliser and ratio of each step, and the audits of all.

#include <functional>
#include <string>
#include <vector>

#include "harness/jobs/orders/rewards/mutants.h"
#include "harness/lib/checkpoint/group.h"

namespace lockstep::rewards {

/// What came of a step, as every rank sees it: rows by ascending id.
struct StepNumbers {
  std::string refused;  ///< why the convention refuses it; then the rest is empty
  std::vector<int64_t> ids;
  std::vector<double> values;     ///< rewards less beta * KL
  std::vector<uint8_t> counted;
  Advantages advantages;
  Moments normalizer;  ///< merged state at the step's end
  Partitioned partitioned;
};

/// What a rank has at the end; all but the last three lines are the same on every rank.
struct Played {
  Failure failure;
  int64_t failed_step = -1;
  std::vector<Finding> findings;  ///< of the first step in which an audit found something; the case ends there
  int64_t found_step = -1;
  std::string digest;   ///< of everything that was computed, and of what was found, in hex
  std::string numbers;  ///< of rows, statistics and advantages alone: the same however the rows are partitioned
  std::vector<StepNumbers> steps;
  int64_t acted_step = -1;  ///< in which the planted mistake first changed anything on this rank
  bool left = false;    ///< this rank misbehaved, and came back
  std::string kept;     ///< digest of what the rank holds: normaliser and last advantages
};

struct PlayOptions {
  Plant plant = {};
  /// What a rank that ends or hangs does; it may never return.
  std::function<void(FaultKind)> misbehave = nullptr;
};

Played play(const Case& one, const PlayOptions& options, checkpoint::Group& group);

}  // namespace lockstep::rewards
