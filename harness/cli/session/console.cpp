#include "harness/cli/session/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

namespace lockstep {
namespace {

int width_of(int descriptor, int otherwise) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

int height_of(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

bool colour_of(int descriptor) {
  return colour_wanted(::isatty(descriptor) != 0, std::getenv("NO_COLOR"), std::getenv("CLICOLOR_FORCE"),
                       std::getenv("TERM"));
}

}  // namespace

bool colour_wanted(bool is_terminal, const char* no_color, const char* clicolor_force, const char* term) {
  const auto is_set = [](const char* value) { return value != nullptr && *value != '\0'; };
  if (is_set(no_color)) return false;
  if (is_set(clicolor_force) && std::string_view(clicolor_force) != "0") return true;
  return is_terminal && !(is_set(term) && std::string_view(term) == "dumb");
}

Console process_console() {
  Console console{std::cout, std::cerr};
  console.out_colour = colour_of(STDOUT_FILENO);
  console.err_colour = colour_of(STDERR_FILENO);
  const char* term = std::getenv("TERM");
  console.err_terminal =
      ::isatty(STDERR_FILENO) != 0 && !(term != nullptr && std::string_view(term) == "dumb");
  console.out_width = ::isatty(STDOUT_FILENO) != 0 ? width_of(STDOUT_FILENO, 80) : 0;
  console.err_width = width_of(STDERR_FILENO, 80);
  console.err_height = height_of(STDERR_FILENO);
  return console;
}

}  // namespace lockstep
