#pragma once
// The values that a record kept, as numbers.

#include <optional>
#include <vector>

#include "harness/verdict/trace/record.h"

namespace lockstep {

/// The values of a tensor's record, whatever their type; nothing if it did not keep them all.
std::optional<std::vector<double>> values_of(const Record& record);

/// The distance of 1 from the next number of that type; of whole numbers 0.
double epsilon_of(DType dtype);
bool is_floating(DType dtype);

/// Did both keep their values, and are these equal as numbers? Bits may differ then in signs of zeros alone.
bool equal_as_numbers(const Record& a, const Record& b);

}  // namespace lockstep
