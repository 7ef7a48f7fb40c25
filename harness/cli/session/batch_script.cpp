#include "harness/cli/session/batch_script.h"

#include <fmt/format.h>

#include <filesystem>

#include "harness/base/shell_word.h"

namespace lockstep {

std::string batch_head(const std::string& out_dir, const std::string& name, const std::vector<std::string>& options) {
  std::string script = fmt::format("#!/bin/bash\n#SBATCH --job-name=lockstep-{}\n#SBATCH --output={}/job.log --open-mode=append\n#SBATCH --requeue\n",
                                   name, out_dir);
  for (const std::string& option : options) script += "#SBATCH " + option + "\n";
  return script + "\ncd " + shell_quoted(std::filesystem::current_path().string()) + "\n";
}

std::string batch_command(const std::string& command) {
  return "child=\ntrap 'kill -TERM $child' TERM\ntrap 'kill -USR1 $child' USR1\n" + command + R"SH( &
child=$!
while :; do
  wait "$child"
  status=$?
  kill -0 "$child" 2>/dev/null || break
done
# 138: warned by USR1 before the time was up; what was done is kept, and it waits for its next turn.
)SH";
}

}  // namespace lockstep
