#include "harness/suites/sampling/sampling.h"

#include "harness/suites/sampling/trials.h"

namespace lockstep {
namespace sampling {
namespace {

std::vector<std::unique_ptr<Suite>> parts_of(const SamplingConfig& config) {
  struct Row {
    Experiment experiment;
    std::unique_ptr<Suite> (*make)(const SamplingConfig&);
  };
  static constexpr Row kRows[] = {
      {Experiment::sampler, make_sampler_trials}, {Experiment::tasks, make_task_trials},
      {Experiment::states, make_state_trials},    {Experiment::counter, make_counter_trials},
      {Experiment::seeds, make_seed_trials},      {Experiment::control, make_control_trials}};
  std::vector<std::unique_ptr<Suite>> parts;
  for (const Row& row : kRows) {
    if (config.experiment == Experiment::all || config.experiment == row.experiment) parts.push_back(row.make(config));
  }
  return parts;
}

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  const std::size_t before = problems.size();
  const SamplingConfig config = read_sampling_config(source, problems);
  if (problems.size() != before) return nullptr;
  return combined("what ranks share out, and what must be alike on all of them", parts_of(config));
}

}  // namespace
}  // namespace sampling

const SuiteKind& sampling_suite() {
  static const SuiteKind kKind{
      "sampling", "samples, tasks, initial states, counters in files, seeds and control values of many ranks",
      &sampling::make, &sampling::sampling_schema};
  return kKind;
}

}  // namespace lockstep
