#pragma once
// What a suite asks of the small program: run.json's section `fault_case`.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "harness/jobs/orders/faults/kinds.h"

namespace lockstep::faults {

struct Order {
  std::string kind;       ///< of fault_kinds(); empty: no fault is planted
  bool wrong = false;     ///< the wrong program; else its control run
  int world = 3;
  int rank = 0;           ///< whose fault it is
  int64_t step = 0;       ///< at which it acts
  int64_t steps = 5;
  double threshold_s = 0.5;     ///< T, of a step and of an evaluation
  double disk_thresholds = 2;   ///< T of a save and of the teardown, which writes the rank's result: a disk has its own pace
  double disk_threshold_s() const { return disk_thresholds * threshold_s; }
  double straggle_share = 0;    ///< of steps at which a rank is late by T / 2
  double jitter_s = 0;          ///< most that a rank is late at any step
  int64_t seed = 0;
  int port = 0;           ///< of a socket that the suite holds, where the kind has one
  bool records = true;    ///< rank-<r>.record is written, for comparisons
  bool saves = true;      ///< each step ends with a save
  bool checked = true;    ///< with the check of collectives
};

nlohmann::json to_json(const Order& order);
/// Throws nlohmann::json::exception.
Order order_from_json(const nlohmann::json& json);

/// What has to be said of the fault.
std::string expected_words(const FaultKind& kind, const Order& order);

}  // namespace lockstep::faults
