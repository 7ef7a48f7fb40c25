#include "harness/cli/session/batch_script.h"

#include <fmt/format.h>

#include <filesystem>

#include "harness/base/errors.h"
#include "harness/base/shell_word.h"

namespace lockstep {

namespace {

/// A word of an #SBATCH line: Slurm takes quotes and backslashes there as a shell does between double quotes, and has nothing for a line break.
std::string sbatch_word(const std::string& word) {
  if (word.find('\n') != std::string::npos)
    throw ConfigError(fmt::format("launcher slurm: {} has a line break, which no option of sbatch can hold", shell_quoted(word)));
  if (shell_quoted(word) == word) return word;
  return "\"" + replaced(replaced(word, "\\", "\\\\"), "\"", "\\\"") + "\"";
}

/// A path in which Slurm shall replace nothing.
std::string sbatch_path(const std::string& path) {
  if (path.find('\\') != std::string::npos)
    throw ConfigError(fmt::format("launcher slurm: {} has a backslash, which Slurm takes out of paths of output: choose another folder", path));
  return sbatch_word(replaced(path, "%", "%%"));
}

}  // namespace

std::string batch_head(const std::string& out_dir, const std::string& name, const std::vector<std::string>& options) {
  std::string script = fmt::format("#!/bin/bash\n#SBATCH --job-name={}\n#SBATCH --output={} --open-mode=append\n#SBATCH --requeue\n",
                                   sbatch_word("lockstep-" + name), sbatch_path(out_dir + "/job.log"));
  for (const std::string& option : options) script += "#SBATCH " + sbatch_word(option) + "\n";
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
