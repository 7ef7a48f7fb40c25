#pragma once
// Scores of another run by which a loss that takes some of a row's candidates chooses them.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// By step, of each micro-step [rows, columns] in float64: the scores of that name that a rank's trace kept whole. Throws
/// std::runtime_error naming a step of which it holds none.
std::map<int64_t, std::vector<at::Tensor>> read_choosing(const std::string& trace_path, const std::vector<int64_t>& steps,
                                                         std::string_view scores);

}  // namespace lockstep
