#include "harness/suites/foreign_saver/failures.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "harness/base/text.h"
#include "harness/plan/config/field.h"
#include "harness/suites/engine/suite.h"

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

namespace {

constexpr Range kSeconds{0.05, 86400};

#define PROGRAM(member, ...)                                                                     \
  Field<ProgramConfig> {                                                                         \
    {"program." #member, __VA_ARGS__}, [](ProgramConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
const std::array kFields{
    PROGRAM(subject, {}, "", "what is tested, in a few words; empty: the save command"),
    PROGRAM(server, {}, "",
        "command that starts once per slot, prints `ready`, takes the commands save, resume and setup as lines "
        "and forks for each ({config}/savers/serve.py is one for PyTorch); empty: each command starts by itself"),
    PROGRAM(setup, {}, "",
        "command that prepares {out} before the save, for example an older checkpoint; empty: nothing does"),
    PROGRAM(save, {}, "",
        "command that saves into the folder {out}, under the tracer: for a shell, or a line for `program.server`; {config} is the "
        "folder of the config"),
    PROGRAM(resume, {}, "",
        "command that resumes from {out} and writes its end result to the file or folder {resume}; an error "
        "status means that nothing could be resumed. Required without `program.check`"),
    PROGRAM(check, {}, "",
        "command that replaces the comparison of end results: exit 0 if {out} (and {resume}) is whole; otherwise "
        "its last line says what is wrong"),
    PROGRAM(points, Range{0, 1e9}, "operations", "most operations at which each failure is tried, evenly spread; 0: all"),
    PROGRAM(power_loss, Range{0, 1e9}, "disks",
        "most disks, of those that a power loss may leave of the recorded save, from which a resumption is tried; 0: none"),
    PROGRAM(writers, Range{0, 4096}, "processes",
        "processes that must be seen to write, so that a silent rank is noticed; 0: any number"),
    PROGRAM(deadline_s, kSeconds, "s", "a command that takes longer is counted as hung"),
    PROGRAM(grace_s, kSeconds, "s", "time for processes that outlive the save command; then they are killed"),
    PROGRAM(patience_s, kSeconds, "s", "a held writer continues if nothing has moved for this long"),
};
#undef PROGRAM

std::vector<std::string_view> failure_names() {
  std::vector<std::string_view> names;
  for (const FailureKind& kind : failure_kinds()) names.push_back(kind.name);
  return names;
}

/// Every {word} of a command must be a placeholder that it may have, and those that it needs must stand there.
void check_placeholders(const SuiteSource& source, std::string_view key, const std::string& command,
                        std::span<const std::string_view> needed, Problems& problems) {
  if (command.empty()) return;
  const Entry* entry = source.find(key);
  const Place place = entry != nullptr ? entry->place : source.place;
  for (const std::string_view each : needed) {
    if (command.find(each) == std::string::npos)
      problems.add(place, fmt::format("{} lacks the placeholder {}", key, each));
  }
}

}  // namespace

ProgramConfig read_program_config(const SuiteSource& source, Problems& problems) {
  ProgramConfig config;
  SuiteSource plain = source;
  config.failures = take_words(plain, "program.failures", failure_names(), problems);
  config.folder = std::filesystem::absolute(source.file).parent_path().string();
  read_fields<ProgramConfig>(plain, kFields, config, problems);
  if (config.save.empty()) problems.add(source.place, "program.save is missing: the command that saves into {out}");
  if (config.resume.empty() && config.check.empty())
    problems.add(source.place,
                 "program.resume is missing: the command that goes on from {out} and writes its end result to {resume}; or "
                 "give program.check");
  constexpr std::array<std::string_view, 1> kOut{"{out}"};
  constexpr std::array<std::string_view, 2> kBoth{"{out}", "{resume}"};
  check_placeholders(source, "program.setup", config.setup, kOut, problems);
  check_placeholders(source, "program.save", config.save, kOut, problems);
  check_placeholders(source, "program.resume", config.resume, kBoth, problems);
  check_placeholders(source, "program.check", config.check, kOut, problems);
  return config;
}

nlohmann::ordered_json program_schema() {
  const ProgramConfig defaults;
  SchemaJson schema = object_schema();
  schema["required"] = {"save"};
  add_fields(schema, kFields, defaults);
  schema["properties"]["failures"] = words_schema(failure_names(), "failures that are tried; default all");
  return schema;
}

std::string filled_in(const std::string& command, const Filling& filling, bool for_shell) {
  const std::pair<std::string_view, const std::string*> all[] = {{"{out}", &filling.out}, {"{resume}", &filling.resume}, {"{config}", &filling.config}};
  ShellText shell;
  std::string plain;
  for (std::string_view rest = command; !rest.empty();) {
    const auto* const found = std::ranges::find_if(all, [&](const auto& each) { return rest.starts_with(each.first); });
    const bool any = found != std::end(all);
    const std::string_view taken = any ? std::string_view(*found->second) : rest.substr(0, 1);
    plain += taken;
    any ? shell.put(taken) : shell.add(taken);
    rest.remove_prefix(any ? found->first.size() : 1);
  }
  return for_shell ? shell.text() : plain;
}

}  // namespace lockstep::program
