#pragma once
// One function a command: prints to the console and returns the exit code. They throw ConfigError,
// MachineError and TraceError; main turns those into exit codes.

#include "harness/base/errors.h"
#include "harness/cli/options.h"
#include "harness/cli/session/progress.h"

namespace lockstep {

/// `command_started`: CLOCK_MONOTONIC seconds at which the process began, from which ranks count to their
/// first step.
int run_command(const RunOptions& options, const Console& console, double command_started);
int plan_command(const PlanOptions& options, const Console& console);
int compare_command(const CompareCommandOptions& options, const Console& console);
int report_command(const ReportOptions& options, const Console& console);
int list_command(const ListOptions& options, const Console& console);
int status_command(const StatusOptions& options, const Console& console);
int wait_command(const WaitOptions& options, const Console& console);
/// 0: every checkpoint that counts is whole to its last byte; 1: something is damaged, or a pointer names another than it should.
int checkpoints_command(const CheckpointsOptions& options, const Console& console);
int doctor_command(const DoctorOptions& options, const Console& console);
int explain_command(const ExplainOptions& options, const Console& console);
int schema_command(const SchemaOptions& options, const Console& console);
/// Runs somebody else's trainer with the probe switched on. Its status is not passed on: 3 if it failed, 7 if nothing was recorded.
int trace_command(const TraceOptions& options, const Console& console);

}  // namespace lockstep
