#include "harness/suites/checkpoint/saver/saver.h"

#include "harness/suites/checkpoint/saver/search.h"

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

class SaverSuite final : public Suite {
 public:
  explicit SaverSuite(const SaverConfig& config) : search_(make_search(config)) {}
  std::string subject() const override { return search_->subject(); }
  std::vector<std::string> plan() const override { return search_->plan(); }
  std::vector<Trial> trials(const SuiteRun& run) override {
    planned_ = {};
    planned_.add(search_->planned(run));
    return planned_.trials();
  }
  std::unique_ptr<SuiteWorker> worker(const SuiteRun&, int) override { return planned_.worker(); }
  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override { return search_->facts(m); }
  std::vector<std::string> notes(const Measurements& m) const override { return search_->notes(m); }

 private:
  std::unique_ptr<Search> search_;
  PlannedTrials planned_;
};

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  return std::make_unique<SaverSuite>(read_saver_config(source, problems));
}

}  // namespace
}  // namespace saver

const SuiteKind& saver_suite() {
  static const SuiteKind kKind{
      "saver", "the library that saves and loads checkpoints, under kills, schedules, power losses, corruption and errors",
      &saver::make, &saver::saver_schema};
  return kKind;
}

}  // namespace lockstep
