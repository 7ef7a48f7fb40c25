#include "harness/suites/engine/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

class Combined final : public Suite {
  template <class Ask>
  auto of_all(Ask ask) const {
    decltype(ask(*parts_.front())) all;
    for (const auto& part : parts_) std::ranges::move(ask(*part), std::back_inserter(all));
    return all;
  }

 public:
  Combined(std::string subject, std::vector<std::unique_ptr<Suite>> parts) : subject_(std::move(subject)), parts_(std::move(parts)) {}
  std::string subject() const override { return subject_; }
  std::vector<std::string> plan() const override {
    return of_all([](const Suite& part) { return part.plan(); });
  }
  std::vector<Trial> trials(const SuiteRun& run) override {
    return of_all([&run](Suite& part) { return part.trials(run); });
  }
  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    return of_all([&m](const Suite& part) { return part.facts(m); });
  }
  std::vector<std::string> notes(const Measurements& m) const override {
    return of_all([&m](const Suite& part) { return part.notes(m); });
  }

 private:
  std::string subject_;
  std::vector<std::unique_ptr<Suite>> parts_;
};

}  // namespace

TrialDisturbed::TrialDisturbed(const std::string& who)
    : MachineError(fmt::format("{} was killed by signal 9 (SIGKILL), which nobody here had sent: the machine was out of memory (dmesg and the "
                               "cgroup's memory.events say so), or somebody ended it", who)) {}

bool count_alike(std::vector<CaseResult>& cases, const std::string& outcome, CaseVerdict verdict, int64_t more) {
  const auto alike = std::ranges::find_if(
      cases, [&](const CaseResult& each) { return each.verdict == verdict && each.outcome == outcome; });
  if (alike == cases.end()) return false;
  alike->cases += more;
  return true;
}

std::unique_ptr<Suite> combined(std::string subject, std::vector<std::unique_ptr<Suite>> parts) {
  return std::make_unique<Combined>(std::move(subject), std::move(parts));
}

}  // namespace lockstep
