#include "harness/suites/checkpoint/trainer/restarts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/base/errors.h"
#include "harness/run/identity.h"
#include "harness/suites/checkpoint/trainer/restarts_config.h"
#include "harness/verdict/config/canonical.h"

namespace lockstep {
namespace restarts {
namespace {

class TrainerSuite : public Suite {
 public:
  explicit TrainerSuite(RestartsConfig config) : config_(std::move(config)) {
    for (const ExperimentKind& kind : experiment_kinds()) {
      if (std::ranges::find(config_.tries, kind.name) != config_.tries.end())
        experiments_[std::string(kind.name)] = kind.make(config_.subject);
    }
  }

  std::string subject() const override { return fmt::format("checkpoints of {}, real ranks", config_.cell); }

  std::string identity() const override { return canonical_json(config_.subject.config); }

  std::vector<std::string> plan() const override {
    std::vector<std::string> lines;
    for (const ExperimentKind& kind : experiment_kinds()) {
      if (experiments_.contains(std::string(kind.name))) lines.push_back(fmt::format("{}: {}", kind.name, kind.help));
    }
    return lines;
  }

  std::vector<Trial> trials(const SuiteRun& run) override {
    std::vector<Trial> all;
    Bench bench = bench_of(run, "references");
    for (const ExperimentKind& kind : experiment_kinds()) {
      const auto experiment = experiments_.find(std::string(kind.name));
      if (experiment == experiments_.end() || *run.stop_requested != 0) continue;
      std::vector<Trial> trials = experiment->second->trials(bench);
      run.say(fmt::format("{}: {} trials, after the runs that they are compared with", kind.name, trials.size()));
      for (Trial& trial : trials) {
        trial.run = [this, of = experiment->second.get(), what = trial](Slot& slot) {
          return of->run(what, slot.keep<Bench>([&] { return bench_of(slot.run(), fmt::format("slot-{}", slot.number())); }));
        };
      }
      all.insert(all.end(), std::make_move_iterator(trials.begin()), std::make_move_iterator(trials.end()));
    }
    return all;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& [name, experiment] : experiments_) {
      for (auto& fact : experiment->facts(m)) all.push_back(std::move(fact));
    }
    return all;
  }

  std::vector<std::string> notes(const Measurements&) const override {
    return {"A killed process leaves what it wrote in the page cache: what a power loss would take is not shown by these "
            "trials.",
            "Saves stand between two steps: a position within a step's accumulation is never saved, so none can be lost."};
  }

 private:
  Bench bench_of(const SuiteRun& run, const std::string& name) const {
    return Bench(rank_program_path(), fmt::format("{}/work/{}", run.out_dir, name), config_.deadline_s, run.stop_requested);
  }

  RestartsConfig config_;
  std::map<std::string, std::unique_ptr<Experiment>> experiments_;
};

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  RestartsConfig config = read_restarts_config(source, problems);
  return problems.empty() ? std::make_unique<TrainerSuite>(std::move(config)) : nullptr;
}

}  // namespace
}  // namespace restarts

const SuiteKind& trainer_suite() {
  static const SuiteKind kKind{
      "trainer", "real runs of a trainer, killed, told to stop and started again, compared with runs that were not",
      &restarts::make, &restarts::restarts_schema};
  return kKind;
}

}  // namespace lockstep
