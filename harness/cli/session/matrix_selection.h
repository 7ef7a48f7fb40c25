#pragma once
// What a user selects of a matrix, and the command line that selects it.

#include <string>
#include <vector>

namespace lockstep {

/// Which cells of which matrix, and where their runs lie.
struct MatrixSelection {
  std::string config;
  std::vector<std::string> set;  ///< key=value
  std::string only, seeds;
  std::string out;  ///< empty: out/<name of the matrix>
  int jobs = 0;     ///< 0: cores
  std::string launcher;  ///< empty: as the config says
};

/// "lockstep run CONFIG …" as a shell takes it: the command that does the same once more (without --fresh and
/// --json).
std::string command_text(const MatrixSelection& selection);

}  // namespace lockstep
