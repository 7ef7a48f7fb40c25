#include "harness/suites/sampling/sampling.h"

#include "harness/suites/sampling/trials.h"

namespace lockstep {
namespace sampling {
namespace {

std::vector<std::unique_ptr<Kind>> make_kinds(const SamplingConfig& config) {
  struct Row {
    Experiment experiment;
    std::unique_ptr<Kind> (*make)(const SamplingConfig&);
  };
  static constexpr Row kRows[] = {
      {Experiment::sampler, make_sampler_trials}, {Experiment::tasks, make_task_trials},
      {Experiment::states, make_state_trials},    {Experiment::counter, make_counter_trials},
      {Experiment::seeds, make_seed_trials},      {Experiment::control, make_control_trials}};
  std::vector<std::unique_ptr<Kind>> kinds;
  for (const Row& row : kRows) {
    if (config.experiment == Experiment::all || config.experiment == row.experiment)
      kinds.push_back(row.make(config));
  }
  return kinds;
}

class SamplingSuite final : public Suite {
 public:
  explicit SamplingSuite(const SamplingConfig& config) : config_(config), kinds_(make_kinds(config_)) {}
  std::string subject() const override {
    return "what ranks share out, and what must be alike on all of them";
  }
  std::vector<std::string> plan() const override {
    std::vector<std::string> lines;
    for (const auto& kind : kinds_) {
      for (std::string& line : kind->plan()) lines.push_back(std::move(line));
    }
    return lines;
  }
  std::vector<Trial> trials(const SuiteRun&) override {
    planned_ = {};
    for (const auto& kind : kinds_) planned_.add(kind->planned());
    return planned_.trials();
  }
  std::unique_ptr<SuiteWorker> worker(const SuiteRun&, int) override { return planned_.worker(); }
  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    std::vector<std::pair<std::string, std::string>> facts;
    for (const auto& kind : kinds_) {
      for (auto& fact : kind->facts(m)) facts.push_back(std::move(fact));
    }
    return facts;
  }
  std::vector<std::string> notes(const Measurements& m) const override {
    std::vector<std::string> notes;
    for (const auto& kind : kinds_) {
      for (std::string& note : kind->notes(m)) notes.push_back(std::move(note));
    }
    return notes;
  }

 private:
  const SamplingConfig config_;
  std::vector<std::unique_ptr<Kind>> kinds_;
  PlannedTrials planned_;
};

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  const std::size_t before = problems.size();
  const SamplingConfig config = read_sampling_config(source, problems);
  if (problems.size() != before) return nullptr;
  return std::make_unique<SamplingSuite>(config);
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
