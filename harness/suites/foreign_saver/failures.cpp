#include "harness/suites/foreign_saver/failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <set>

namespace lockstep::program {
namespace {

using enum OperationKind;

bool any(const Operation& operation) { return operation.kind != map; }
/// A rename may need a block for its folder.
bool may_need_space(const Operation& operation) { return needs_space(operation) || operation.kind == rename; }
/// Delayed allocation finds out at the sync or the close that there is no space, a file system with copy on write when it opens a file
/// to write it over.
bool may_find_no_space(const Operation& operation) {
  const bool opens = operation.kind == open && !stands_already(operation);
  return may_need_space(operation) || opens || operation.kind == sync || operation.kind == close;
}
bool touches_the_disk(const Operation& operation) { return operation.kind != map && operation.call != "msync"; }
bool writes_bytes(const Operation& operation) { return operation.kind == write && operation.bytes > 1; }

constexpr auto kKinds = std::to_array<FailureKind>({
    {"kill", "killed", "SIGKILL to the process before the operation", InjectedFault::kill, 0, any},
    {"kill_all", "all killed", "SIGKILL to every process before the operation", InjectedFault::kill_all, 0, any},
    {"ENOSPC", "fails with ENOSPC", "the one operation finds the disk full", InjectedFault::fail, ENOSPC, may_find_no_space},
    {"disk_full", "disk full from there on", "this and all later operations that need space fail with ENOSPC",
     InjectedFault::fail_space, ENOSPC, may_need_space},
    {"EDQUOT", "fails with EDQUOT", "the one operation is over the quota", InjectedFault::fail, EDQUOT, may_find_no_space},
    {"EIO", "fails with EIO", "the disk fails the one operation", InjectedFault::fail, EIO, touches_the_disk},
    {"short_write", "short write", "half of the bytes are written, and the call says so", InjectedFault::shorten, 0, writes_bytes},
    {"hold", "held until another has run", "a writer stands still before the operation until another one has ended",
     InjectedFault::hold, 0, any},
});

/// "0.10" behind "0.2".
std::vector<int> parts_of(const std::string& lineage) {
  std::vector<int> parts;
  for (std::size_t begin = 0; begin <= lineage.size();) {
    const std::size_t end = std::min(lineage.find('.', begin), lineage.size());
    parts.push_back(std::atoi(lineage.substr(begin, end - begin).c_str()));
    begin = end + 1;
  }
  return parts;
}

/// `most` of them, evenly spread, first and last included; all if most is 0.
std::vector<const Operation*> even_sample(const std::vector<const Operation*>& all, int64_t most) {
  const auto count = static_cast<int64_t>(all.size());
  if (most <= 0 || count <= most) return all;
  std::vector<const Operation*> some;
  for (int64_t i = 0; i < most; ++i)
    some.push_back(all[static_cast<std::size_t>(most == 1 ? 0 : i * (count - 1) / (most - 1))]);
  return some;
}

class Planner {
 public:
  Planner(const std::vector<Operation>& operations, const PlanLimits& limits)
      : operations_(operations), limits_(limits), writers_(writers_of(operations)) {}

  FailurePlan plan() {
    for (int i = 1; i <= 2; ++i)
      plan_.failures.push_back(
          {{fmt::format("none@{}", i), "none", "anywhere", limits_.trial_s}, nullptr, {}, "nothing fails"});
    for (const FailureKind& kind : failure_kinds()) {
      const bool wanted = limits_.kinds.empty() || std::ranges::find(limits_.kinds, kind.name) != limits_.kinds.end();
      if (wanted) add(kind);
    }
    return std::move(plan_);
  }

 private:
  std::size_t writer_of(const Operation& operation) const {
    return static_cast<std::size_t>(std::ranges::find(writers_, operation.process) - writers_.begin());
  }

  void add(const FailureKind& kind) {
    std::vector<const Operation*> fitting;
    for (const Operation& operation : operations_) {
      if (kind.fits(operation)) fitting.push_back(&operation);
    }
    std::ranges::stable_sort(fitting, {}, [&](const Operation* each) { return writer_of(*each); });
    const bool holds = kind.injected == InjectedFault::hold;
    if (holds && writers_.size() < 2) return;
    const std::vector<const Operation*> tried = even_sample(fitting, limits_.points);
    for (const Operation* operation : tried) {
      for (std::size_t other = 0; other < (holds ? writers_.size() : 1); ++other) {
        if (holds && (other == writer_of(*operation) || related(writers_[other], operation->process))) continue;
        add(kind, *operation, holds ? writers_[other] : "", other);
      }
    }
    plan_.coverage.push_back({std::string(kind.row), tried.size(), fitting.size()});
  }

  /// A process waits for its own children as a rule: to hold it for one of them, or the other way round, tells nothing.
  static bool related(const std::string& a, const std::string& b) {
    return (a + ".").starts_with(b + ".") || (b + ".").starts_with(a + ".");
  }

  void add(const FailureKind& kind, const Operation& operation, const std::string& until, std::size_t other) {
    const std::size_t writer = writer_of(operation);
    PlannedFailure planned;
    planned.kind = &kind;
    planned.intervention = {kind.injected, operation.process, operation.index, kind.error, until};
    planned.trial.name = fmt::format("{}@{}:{}", kind.name, writer, operation.index);
    planned.trial.failure = kind.row;
    planned.trial.place = std::string(name_of(operation.kind));
    planned.trial.estimate_s = limits_.trial_s;
    const std::string who = writers_.size() > 1 ? fmt::format("writer {}", writer) : "the program";
    if (writers_.size() > 1) planned.trial.place = fmt::format("writer {}, {}", writer, planned.trial.place);
    planned.words = fmt::format("{}: {} at its operation {}, {}", kind.row, who, operation.index, words_of(operation));
    if (!until.empty()) {
      planned.trial.name += fmt::format("-until-{}", other);
      planned.words = fmt::format("{} is held before its operation {}, {}, until writer {} has ended", who,
                                  operation.index, words_of(operation), other);
    }
    plan_.failures.push_back(std::move(planned));
  }

  const std::vector<Operation>& operations_;
  const PlanLimits& limits_;
  std::vector<std::string> writers_;
  FailurePlan plan_;
};

}  // namespace

std::span<const FailureKind> failure_kinds() { return kKinds; }

const FailureKind* find_failure_kind(std::string_view name) {
  const auto at = std::ranges::find(kKinds, name, &FailureKind::name);
  return at == kKinds.end() ? nullptr : &*at;
}

std::vector<std::string> writers_of(const std::vector<Operation>& operations) {
  std::set<std::string> names;
  for (const Operation& operation : operations) names.insert(operation.process);
  std::vector<std::string> writers(names.begin(), names.end());
  std::ranges::sort(writers, {}, parts_of);
  return writers;
}

FailurePlan plan_failures(const std::vector<Operation>& operations, const PlanLimits& limits) {
  return Planner(operations, limits).plan();
}

}  // namespace lockstep::program
