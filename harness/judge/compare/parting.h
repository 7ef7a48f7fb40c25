#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/judge/compare/operations.h"

// Where two layouts of a program part: the first operation of a step whose result is not the other layout's rows, sum
// or mean.

namespace lockstep {

struct Parting {
  std::string code;         ///< empty: none is clear from this
  std::string because;      ///< with the place
  std::string place;        ///< "train.py:59"
  bool other_rows = false;  ///< the program has chosen rows by itself, and none of the reference's
};

/// The operation from which on the losses of these ranks, of a run that begins the step as the reference does and has
/// its rows, are not the reference's. Nothing: the losses' mean or sum is the reference's, or what parts them is not
/// among what both do.
std::optional<Parting> find_parting(const std::vector<Operations>& reference, const std::vector<Operations>& run);

}  // namespace lockstep
