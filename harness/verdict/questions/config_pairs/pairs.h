#pragma once
// Pairs of configs that differ in one key: every key that can change training, at other values than the base's.

#include <string>
#include <vector>

#include "harness/verdict/plan/matrix_source.h"

namespace lockstep {

/// A config beside the base that differs from it in one key.
struct KeyPair {
  std::string key, value;
  std::string on;  ///< what of the matrix's base is set otherwise on both sides: "optimizer=sgd momentum=0.9"; empty: nothing
  RunConfig base, changed;
};

/// A key, or one of its values, that cannot be tried, and why.
struct LeftOut {
  std::string key, why;
};

struct ConfigPairsConfig {
  std::vector<std::string> on;  ///< bases besides the matrix's own: settings with spaces between
  std::vector<KeyPair> pairs;
  std::vector<LeftOut> left_out;
};

/// Every key of the trainer's runs that decides what is learned, at the words that it may be besides the base's, or at one
/// other number, on each base; those that no run can have are left out with the first reason why.
void find_config_pairs(const MatrixSource& source, ConfigPairsConfig& section, Problems& problems);

/// Each pair twice: against a reference of one rank, and against one of the cell's own layout, where bits show whether the
/// key changes anything ("4x6 momentum=0.5 against 4x6").
std::vector<Cell> config_pair_cells(MatrixSource& source, Problems& problems);

}  // namespace lockstep
