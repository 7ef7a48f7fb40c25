#include "harness/suites/checkpoint/saver/saver.h"

#include "harness/suites/checkpoint/saver/search.h"

namespace lockstep {
namespace saver {
namespace {

std::unique_ptr<Suite> make_search(const SaverConfig& config) {
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

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  return make_search(read_saver_config(source, problems));
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
