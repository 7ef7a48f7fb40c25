#pragma once
// What the trials of this suite have in common: they carry what they run.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/suites/engine/mutation_check.h"
#include "harness/suites/sampling/sampling_config.h"
#include "harness/lib/data/sharding/finding.h"

namespace lockstep::sampling {

/// Good if nothing was found.
void judge_finding(Cases& cases, const sharding::Finding& finding, const std::string& of);

/// One kind of trials. Made once for each run of the suite; outlives its trials.
class Kind {
 public:
  virtual ~Kind() = default;
  virtual std::vector<std::string> plan() const = 0;
  virtual std::vector<Planned> planned() = 0;
  /// After all trials.
  virtual std::vector<std::pair<std::string, std::string>> facts(const Measurements& /*measured*/) const { return {}; }
  virtual std::vector<std::string> notes(const Measurements& /*measured*/) const { return {}; }
};

std::unique_ptr<Kind> make_sampler_trials(const SamplingConfig& config);
std::unique_ptr<Kind> make_task_trials(const SamplingConfig& config);
std::unique_ptr<Kind> make_state_trials(const SamplingConfig& config);
std::unique_ptr<Kind> make_counter_trials(const SamplingConfig& config);
std::unique_ptr<Kind> make_seed_trials(const SamplingConfig& config);
std::unique_ptr<Kind> make_control_trials(const SamplingConfig& config);

}  // namespace lockstep::sampling
