#include "harness/session/matrix_selection.h"


namespace lockstep {
namespace {

bool is_plain(char c) {
  constexpr const char* kOthers = "_-./:=,@%+";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::char_traits<char>::find(kOthers, 10, c) != nullptr;
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  bool plain = !word.empty();
  for (const char c : word) plain = plain && is_plain(c);
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

std::string command_text(const MatrixSelection& selection) {
  std::string text = "lockstep run " + shell_quoted(selection.config);
  for (const std::string& setting : selection.set) text += " --set " + shell_quoted(setting);
  if (!selection.only.empty()) text += " --only " + shell_quoted(selection.only);
  if (!selection.seeds.empty()) text += " --seeds " + shell_quoted(selection.seeds);
  if (!selection.out.empty()) text += " --out " + shell_quoted(selection.out);
  if (selection.jobs > 0) text += " --jobs " + std::to_string(selection.jobs);
  return text;
}

}  // namespace lockstep
