#pragma once
// The output folder of a matrix: whose it is.

#include <string>

#include "harness/verdict/plan/matrix.h"

namespace lockstep {

/// "out/<name>".
std::string default_out_dir(const Matrix& matrix);

/// Content of OUT/matrix.json, which says whose folder OUT is: {"file": …, "name": …, "schema_version": 1}.
std::string matrix_stamp(const Matrix& matrix);

/// Throws ConfigError naming both matrices if `out_dir` holds the results of a matrix of another name. A
/// folder that is not there yet or has no matrix.json is free to take.
void check_out_dir(const Matrix& matrix, const std::string& out_dir);

}  // namespace lockstep
