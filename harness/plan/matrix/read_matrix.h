#pragma once
// From a config file and the command line to a matrix.

#include <string>

#include "harness/plan/matrix/matrix.h"

namespace lockstep {

/// Reads and resolves. Throws ConfigError with every problem found. An `only` that selects no cell gives no
/// cells.
Matrix read_matrix(const std::string& file, const Overrides& overrides);
Matrix parse_matrix(const std::string& text, const std::string& file_name, const Overrides& overrides);

}  // namespace lockstep
