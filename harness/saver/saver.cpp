#include "harness/saver/saver.h"

#include <map>

#include "harness/base/errors.h"
#include "harness/saver/search.h"

namespace lockstep {
namespace saver {
namespace {

std::unique_ptr<Search> make_search(const SaverConfig& config) {
  switch (config.search) {
    case SearchKind::kill:
      return make_kill_search(config);
    case SearchKind::schedules:
      return make_schedule_search(config);
    case SearchKind::power:
      return make_power_search(config);
    case SearchKind::corruption:
      return make_corruption_search(config);
    case SearchKind::errors:
      return make_error_search(config);
  }
  return nullptr;
}

class Worker final : public LaboratoryWorker {
 public:
  explicit Worker(const std::map<std::string, Planned, std::less<>>& planned) : planned_(planned) {}
  std::vector<CaseResult> run(const Trial& trial) override {
    const auto found = planned_.find(trial.name);
    LOCKSTEP_CHECK(found != planned_.end(), "a trial that was planned is known");
    return found->second.run();
  }

 private:
  const std::map<std::string, Planned, std::less<>>& planned_;
};

class SaverLaboratory final : public Laboratory {
 public:
  explicit SaverLaboratory(const SaverConfig& config) : search_(make_search(config)) {}
  std::string subject() const override { return search_->subject(); }
  std::vector<std::string> plan() const override { return search_->plan(); }
  std::vector<Trial> trials(const LaboratoryRun& run) override {
    std::vector<Trial> trials;
    for (Planned& planned : search_->planned(run)) {
      trials.push_back(planned.trial);
      planned_[planned.trial.name] = std::move(planned);
    }
    LOCKSTEP_CHECK(trials.size() == planned_.size(), "trials have names of their own");
    return trials;
  }
  std::unique_ptr<LaboratoryWorker> worker(const LaboratoryRun&, int) override { return std::make_unique<Worker>(planned_); }
  std::vector<std::pair<std::string, std::string>> facts() const override { return search_->facts(); }
  std::vector<std::string> notes() const override { return search_->notes(); }

 private:
  std::unique_ptr<Search> search_;
  std::map<std::string, Planned, std::less<>> planned_;
};

std::unique_ptr<Laboratory> make(const LaboratorySource& source, Problems& problems) {
  return std::make_unique<SaverLaboratory>(read_saver_config(source, problems));
}

}  // namespace
}  // namespace saver

const LaboratoryKind& saver_laboratory() {
  static const LaboratoryKind kKind{
      "saver", "the library that saves and loads checkpoints, under kills, schedules, power losses, corruption and errors",
      &saver::make, &saver::saver_schema};
  return kKind;
}

}  // namespace lockstep
