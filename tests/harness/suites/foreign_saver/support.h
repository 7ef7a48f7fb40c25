#pragma once
// A folder to save to, and the small saver's commands.

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "harness/suites/foreign_saver/tracer.h"

namespace lockstep::program {

inline const std::string kSaver = PROGRAM_SAVER;
inline const std::string kStaticSaver = PROGRAM_SAVER_STATIC;

class SavingFolder {
 public:
  SavingFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep_program_XXXXXX").string();
    root_ = std::filesystem::canonical(::mkdtemp(name.data())).string();
    std::filesystem::create_directories(out());
  }
  ~SavingFolder() { std::filesystem::remove_all(root_); }
  std::string out() const { return root_ + "/out"; }
  std::string log() const { return root_ + "/printed.log"; }
  std::string root() const { return root_; }
  std::string text(const std::string& name) const {
    std::ifstream stream(out() + "/" + name);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  }
  TraceOptions options() const {
    TraceOptions options;
    options.watched = out();
    options.deadline_s = 20;
    return options;
  }
  TracedRun run(const std::string& command, const Intervention& intervention = {}) const {
    Tracer tracer(log());
    TraceOptions wanted = options();
    wanted.intervention = intervention;
    wanted.whole = true;
    return tracer.run(command, wanted);
  }

 private:
  std::string root_;
};

/// "openat state", "write state": calls with their names, in their order.
inline std::vector<std::string> calls_of(const TracedRun& run) {
  std::vector<std::string> calls;
  for (const Operation& operation : run.operations)
    calls.push_back(operation.call + " " + operation.path + (operation.to.empty() ? "" : ">" + operation.to));
  return calls;
}

}  // namespace lockstep::program
