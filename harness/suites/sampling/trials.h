#pragma once
// What the trials of this suite have in common: they carry what they run.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/lib/data/sharding/finding.h"
#include "harness/suites/engine/mutation_check.h"
#include "harness/suites/sampling/sampling_config.h"

namespace lockstep::sampling {

/// Good if nothing was found.
void judge_finding(Cases& cases, const sharding::Finding& finding, const std::string& of);

/// The parts of the suite.
std::unique_ptr<Suite> make_sampler_trials(const SamplingConfig& config);
std::unique_ptr<Suite> make_task_trials(const SamplingConfig& config);
std::unique_ptr<Suite> make_state_trials(const SamplingConfig& config);
std::unique_ptr<Suite> make_counter_trials(const SamplingConfig& config);
std::unique_ptr<Suite> make_seed_trials(const SamplingConfig& config);
std::unique_ptr<Suite> make_control_trials(const SamplingConfig& config);

}  // namespace lockstep::sampling
