#pragma once
// How many pairs of a row and a candidate the head takes at once.

#include <algorithm>
#include <cstdint>

namespace lockstep {

/// Numbers that a head's pairs may keep for the backward pass; where they would be more, so many of a part. The same in each
/// precision, so that a twin takes its rows as its run does.
inline constexpr int64_t kKeptWhole = int64_t{1} << 23, kKeptAtOnce = int64_t{1} << 19;

/// Numbers that one pair keeps: what its candidate finds in the context, beside the candidate and times it, and its hidden layer.
constexpr int64_t numbers_of_pair(int64_t width, int64_t hidden, int64_t context_steps) {
  return 5 * width + 4 * hidden + 3 * context_steps;
}

/// Of a head's rows, how many are computed as one piece: all of them, as far as what their pairs keep is small.
constexpr int64_t rows_at_once(int64_t rows, int64_t candidates, int64_t of_pair) {
  const int64_t of_row = std::max<int64_t>(candidates * of_pair, 1);
  return rows * of_row <= kKeptWhole ? rows : std::max<int64_t>(kKeptAtOnce / of_row, 1);
}

}  // namespace lockstep
