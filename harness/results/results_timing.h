#pragma once
// The table of timed layouts as results.json holds it. Of the two results files alone.

#include "harness/results/results.h"
#include "harness/results/results_fields.h"

namespace lockstep {

results_fields::Json timing_to_json(const Timing& timing);
/// The inverse. Throws std::runtime_error or a JSON exception on what it does not know.
Timing timing_from_json(const results_fields::Json& json);

}  // namespace lockstep
