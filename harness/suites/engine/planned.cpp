#include "harness/suites/engine/planned.h"

namespace lockstep {
namespace {

using Runs = std::map<std::string, std::function<std::vector<CaseResult>()>, std::less<>>;

class Worker final : public SuiteWorker {
 public:
  explicit Worker(const Runs& runs) : runs_(runs) {}
  std::vector<CaseResult> run(const Trial& trial) override {
    const auto found = runs_.find(trial.name);
    LOCKSTEP_CHECK(found != runs_.end(), "a trial that was planned is known");
    return found->second();
  }

 private:
  const Runs& runs_;
};

}  // namespace

void PlannedTrials::add(std::vector<Planned> more) {
  for (Planned& each : more) {
    const bool added = runs_.emplace(each.trial.name, std::move(each.run)).second;
    LOCKSTEP_CHECK(added, "trials have names of their own");
    trials_.push_back(std::move(each.trial));
  }
}

std::unique_ptr<SuiteWorker> PlannedTrials::worker() const { return std::make_unique<Worker>(runs_); }

bool count_alike(std::vector<CaseResult>& cases, const std::string& outcome, CaseVerdict verdict, int64_t more) {
  const auto alike = std::ranges::find_if(
      cases, [&](const CaseResult& each) { return each.verdict == verdict && each.outcome == outcome; });
  if (alike == cases.end()) return false;
  alike->cases += more;
  return true;
}

}  // namespace lockstep
