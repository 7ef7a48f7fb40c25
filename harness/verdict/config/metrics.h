#pragma once
// What a run measures, by name, for programs that have no LibTorch: words of primary.metric. A test
// holds this table and what the trainer writes equal.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {

/// The metric of that name of any trainer, or null; trainers that share a name mean the same by it.
const MetricSpec* find_metric(std::string_view name);

/// Words of primary.metric: what outcomes can be judged by.
std::vector<std::string> outcome_metrics(const TrainerSpec& trainer);

/// Why a run would not measure a metric of outcome_metrics: "accuracy_256 is measured on 256 test pairs or
/// more, and there are 20; …". Empty if it does, or if that depends on samples that are not known.
std::string unmeasured(std::string_view metric, const RunConfig& config,
                       const std::optional<SampleCounts>& samples);

/// What is wrong if the data have too few training samples for a step of the run; empty if nothing.
std::string too_few_samples(const RunConfig& config, const SampleCounts& samples);

}  // namespace lockstep
