#include "harness/cli/guarded.h"

#include <exception>
#include <filesystem>
#include <ostream>

#include "harness/base/errors.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/verdict/trace/trace_error.h"

namespace lockstep {

int guarded(const std::function<int()>& command, const Console& console) {
  try {
    const int code = command();
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
  } catch (const std::filesystem::filesystem_error& error) {
    console.err << "lockstep: " << clean_line(error.path1().string()) << ": " << clean_line(error.code().message()) << "\n";
    return kExitMachine;
  } catch (const std::exception& error) {
    console.err << "lockstep: internal error: " << clean_text(error.what()) << "\n";
    return kExitMachine;
  }
}

}  // namespace lockstep
