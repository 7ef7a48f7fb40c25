#pragma once
// Reads what a matrix file and the command line say.

#include <string>
#include <string_view>
#include <vector>

#include "harness/plan/matrix/matrix.h"

namespace lockstep {

/// Words that may stand at a matrix's top level besides fields.
std::vector<std::string_view> section_keys();

MatrixSource read_source(const std::string& text, const std::string& file_name, const Overrides& overrides,
                         Problems& problems);

}  // namespace lockstep
