// lockstep: parse, call, catch, exit status.

#include <exception>
#include <iostream>
#include <variant>

#include "harness/base/clean_text.h"
#include "harness/base/clock.h"
#include "harness/base/errors.h"
#include "harness/cli/commands.h"
#include "harness/cli/list.h"
#include "harness/launch/local/standard_streams.h"
#include "harness/trace/reader.h"
#include "harness/trace/trace_error.h"

namespace lockstep {
namespace {

int call(const CommandOptions& command, const Console& console, double started) {
  struct Caller {
    const Console& console;
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
    int operator()(const DoctorOptions& o) const { return doctor_command(o, console); }
    int operator()(const ExplainOptions& o) const { return explain_command(o, console); }
    int operator()(const SchemaOptions& o) const { return schema_command(o, console); }
  };
  return std::visit(Caller{console, started}, command);
}

int guarded_call(const CommandOptions& command, const Console& console, double started) {
  try {
    const int code = call(command, console, started);
    if (!console.out.flush()) throw MachineError("standard output cannot be written");
    return code;
  } catch (const ConfigError& error) {
    console.err << clean_text(error.what()) << "\n";
    return kExitUsage;
  } catch (const TraceError& error) {
    console.err << clean_text(error.what()) << "\n";
    return kExitUsage;
  } catch (const MachineError& error) {
    console.err << "lockstep: " << clean_text(error.what()) << "\n";
    return kExitMachine;
  } catch (const std::exception& error) {
    console.err << "lockstep: internal error: " << clean_text(error.what()) << "\n";
    return kExitMachine;
  }
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
  return lockstep::guarded_call(*line.command, lockstep::process_console(), started);
}
