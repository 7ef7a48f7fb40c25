#pragma once
// Where texts go, and what the place can show.

#include <iosfwd>

namespace lockstep {

struct Console {
  std::ostream& out;  ///< data
  std::ostream& err;  ///< progress, logs, what is wrong
  bool out_colour = false;
  bool err_colour = false;
  bool err_terminal = false;  ///< a progress bar may be repainted
  int out_width = 0;          ///< columns of a terminal, 80 where it does not say; 0: not a terminal
  int err_width = 80;
  int err_height = 0;  ///< lines; 0: unknown
};

/// Colour: never with NO_COLOR, always with CLICOLOR_FORCE other than 0, else on a terminal that is not dumb.
bool colour_wanted(bool is_terminal, const char* no_color, const char* clicolor_force, const char* term);

/// Standard output and standard error of this process.
Console process_console();

}  // namespace lockstep
