#pragma once
// The matrix's own scalar keys as data: name, question, primary.margin, …

#include <span>
#include <string_view>

#include "harness/verdict/config/field.h"
#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/plan/question.h"

namespace lockstep {

WordList words_of(RanksPolicy);
WordList words_of(OutcomeTest);

/// These, then those that questions have of their own.
std::span<const MatrixField> matrix_fields();
/// Null if there is none of that key.
const MatrixField* find_matrix_field(std::string_view key);

}  // namespace lockstep
