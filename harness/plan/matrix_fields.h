#pragma once
// The matrix's own scalar keys as data: name, question, primary.margin, …

#include <span>
#include <string_view>

#include "harness/config/field.h"
#include "harness/plan/matrix.h"

namespace lockstep {

using MatrixField = Field<Matrix>;

WordList words_of(Question);
WordList words_of(RanksPolicy);

std::span<const MatrixField> matrix_fields();
/// Null if there is none of that key.
const MatrixField* find_matrix_field(std::string_view key);

}  // namespace lockstep
