#pragma once
// Looks and calibrations as results.json holds them. Of the results files alone.

#include "harness/results/results.h"
#include "harness/results/results_fields.h"

namespace lockstep::results_fields {

Json sequential_to_json(const Sequential& sequential);
Sequential sequential_from_json(const Json& json);

Json calibration_to_json(const Calibration& calibration);
/// Throws std::runtime_error or Json::exception on what calibration_to_json does not write.
Calibration calibration_from_json(const Json& json);

}  // namespace lockstep::results_fields
