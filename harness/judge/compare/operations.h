#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Where two layouts of a program part: the first operation of a step whose result is not the other layout's rows, sum or mean.

namespace lockstep {

/// Of a tensor: numbers that are linear in its values (`operations.py`).
struct Projection {
  std::vector<int64_t> shape;
  double whole = 0;
  uint64_t storage = 0;
  std::vector<double> rows, columns;  ///< by index of the first and of the second dimension; empty: not kept
  std::vector<double> sums;           ///< of rows; the same whatever the order of columns
};

struct Operation {
  std::string name;   ///< aten's, "div.Tensor"; "backward": a backward pass begins with what it takes
  std::string place;  ///< "train.py:59"
  bool in_backward = false;
  std::vector<double> numbers;  ///< among its arguments
  std::vector<Projection> in, out;
};

struct Operations {
  std::vector<Operation> all;
  std::vector<double> drawn;  ///< projections of what was drawn before the step
};

/// A rank's; empty where there are none, or none that can be read.
Operations read_operations(const std::string& folder, int rank);

struct Parting {
  std::string code;     ///< empty: none is clear from this
  std::string because;  ///< with the place
  std::string place;    ///< "train.py:59"
};

/// The operation from which on the losses of these ranks, of a run that begins the step as the reference does and has its rows, are
/// not the reference's. Nothing: the losses' mean or sum is the reference's, or what parts them is not among what both do.
std::optional<Parting> find_parting(const std::vector<Operations>& reference, const std::vector<Operations>& run);

}  // namespace lockstep
