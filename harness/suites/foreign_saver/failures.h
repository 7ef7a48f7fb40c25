#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/plan/config/field.h"
#include "harness/suites/engine/suite.h"
#include "harness/suites/foreign_saver/system_calls.h"
#include "harness/suites/foreign_saver/tracer.h"

// Which failures are tried at which operations.

namespace lockstep::program {

struct FailureKind {
  std::string_view name;  ///< as configs and trials have it: "kill", "ENOSPC"
  std::string_view row;   ///< in the table: "killed", "fails with ENOSPC"
  std::string_view help;
  InjectedFault injected;
  int error = 0;
  bool (*fits)(const Operation& operation) = nullptr;  ///< can it happen to that operation?
};
std::span<const FailureKind> failure_kinds();

/// The processes that write, in the order of their lineages: "0", "0.1", "0.1.2", "0.2". Their places are the writers'
/// numbers.
std::vector<std::string> writers_of(const std::vector<Operation>& operations);

struct PlannedFailure {
  Trial trial;
  const FailureKind* kind = nullptr;  ///< null: nothing fails
  Intervention intervention;
  std::string words;  ///< "writer 1 is killed before its operation 7, rename a to b"
};

/// At how many of the operations at which it can happen a failure is to be tried.
struct Coverage {
  std::string failure;
  std::size_t planned = 0, fitting = 0;
  bool operator==(const Coverage&) const = default;
};

struct FailurePlan {
  std::vector<PlannedFailure> failures;
  std::vector<Coverage> coverage;
};

struct PlanLimits {
  std::vector<std::string> kinds;  ///< empty: all
  int64_t points = 0;              ///< most operations a failure; 0: all
  double trial_s = 0;              ///< estimate of one
};
/// Trials of a recorded run: two without a failure first, then failure by failure, writer by writer, in their order.
FailurePlan plan_failures(const std::vector<Operation>& operations, const PlanLimits& limits);

// The section `program` of a config.

struct ProgramConfig {
  std::string folder;   ///< of the config: {config}
  std::string subject;  ///< empty: the save command
  std::string server;
  std::string setup, save, resume, check;
  std::vector<std::string> failures;  ///< names of failure_kinds(); empty: all
  int64_t points = 0;
  int64_t power_loss = 100;
  int64_t writers = 0;
  double deadline_s = 60, grace_s = 2, patience_s = 0.3;
};

/// Reports what is missing, and placeholders that a command lacks or that are none.
ProgramConfig read_program_config(const SuiteSource& source, Problems& problems);

nlohmann::ordered_json program_schema();

/// What stands for the placeholders of a command.
struct Filling {
  std::string out, resume, config;
};
/// The command with {out}, {resume} and {config} replaced by paths, quoted for a shell; as they are for a server's line.
std::string filled_in(const std::string& command, const Filling& filling, bool for_shell);

}  // namespace lockstep::program
