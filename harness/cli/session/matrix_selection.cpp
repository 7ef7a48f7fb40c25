#include "harness/cli/session/matrix_selection.h"

#include "harness/base/shell_word.h"

namespace lockstep {

std::string command_text(const MatrixSelection& selection) {
  std::string text = "lockstep run " + shell_quoted(selection.config);
  for (const std::string& setting : selection.set) text += " --set " + shell_quoted(setting);
  if (!selection.only.empty()) text += " --only " + shell_quoted(selection.only);
  if (!selection.seeds.empty()) text += " --seeds " + shell_quoted(selection.seeds);
  if (!selection.out.empty()) text += " --out " + shell_quoted(selection.out);
  if (selection.jobs > 0) text += " --jobs " + std::to_string(selection.jobs);
  if (!selection.launcher.empty()) text += " --launcher " + shell_quoted(selection.launcher);
  return text;
}

}  // namespace lockstep
