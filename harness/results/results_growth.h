#pragma once
// Noise scales and growing batches in results.json. Of the two results files alone.

#include "harness/results/results.h"
#include "harness/results/results_fields.h"

namespace lockstep::results_fields {

Json noise_scale_to_json(const NoiseScale& scale);
NoiseScale noise_scale_from_json(const Json& json);
Json growth_to_json(const Growth& growth);
Growth growth_from_json(const Json& json);

}  // namespace lockstep::results_fields
