// lockstep: parse, call, catch, exit status.

#include <iostream>
#include <variant>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/run/launchers/local/launcher.h"

namespace lockstep {
namespace {

int call(const CommandOptions& command, Console console, double started) {
  std::visit([&](const auto& options) { if constexpr (requires { options.quiet; }) console.quiet = options.quiet; }, command);
  struct Caller {
    Console console;
    double started;
    int operator()(RunOptions o) const {
      o.selection.config = config_path(o.selection.config);
      return run_command(o, console, started);
    }
    int operator()(PlanOptions o) const {
      o.selection.config = config_path(o.selection.config);
      return plan_command(o, console);
    }
    int operator()(const CompareCommandOptions& o) const { return compare_command(o, console); }
    int operator()(const ReportOptions& o) const { return report_command(o, console); }
    int operator()(const ListOptions& o) const { return list_command(o, console); }
    int operator()(const StatusOptions& o) const { return status_command(o, console); }
    int operator()(const WaitOptions& o) const { return wait_command(o, console); }
    int operator()(const CheckpointsOptions& o) const { return checkpoints_command(o, console); }
    int operator()(const DoctorOptions& o) const { return doctor_command(o, console); }
    int operator()(const ExplainOptions& o) const { return explain_command(o, console); }
    int operator()(const SchemaOptions& o) const { return schema_command(o, console); }
    int operator()(const CheckOptions& o) const { return check_command(o, console); }
    int operator()(const IssueOptions& o) const { return issue_command(o, console); }
    int operator()(const TraceOptions& o) const { return trace_command(o, console); }
  };
  return std::visit(Caller{console, started}, command);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::open_standard_streams();
  const double started = lockstep::monotonic_s();
  const lockstep::ParsedLine line = lockstep::parse_command_line(argc, argv);
  if (!line.command) {
    std::cout << line.out << std::flush;
    std::cerr << lockstep::clean_text(line.err);
    return line.exit_code;
  }
  const lockstep::Console console = lockstep::process_console();
  return lockstep::guarded([&] { return lockstep::call(*line.command, console, started); }, console);
}
