#pragma once
// A replayed step's loss taken apart: what a trainer's own function gives for single rows, pairs of them and all together.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// What one rank measured. Collectives were answered as if every rank had the same rows, but of `own`.
struct MeasuredRows {
  std::vector<int64_t> own_ids;  ///< sample ids of the rank's rows
  double own = 0;                ///< the loss that they gave, all ranks together
  std::optional<double> together;              ///< of all rows of the step; nothing where the function could not be measured
  std::map<int64_t, double> singles;           ///< by sample id
  std::optional<int64_t> first;                ///< the row that stands in every pair
  std::map<int64_t, double> pairs;             ///< by the other row's sample id
  double epsilon = 0;                          ///< of the type in which it was computed
};

/// Of one step, by rank; the same weights on both sides.
struct RowsApart {
  int64_t step = 0;
  std::vector<MeasuredRows> reference, cell;
};

/// The last step up to `step` that both folders of traces hold. Throws TraceError.
std::optional<RowsApart> rows_apart(const std::string& reference_dir, const std::string& cell_dir, int64_t step);

/// What rows lose and count, of a loss that is the weighted mean of its rows, or their sum.
struct RowLosses {
  struct Row {
    double loss = 0, weight = 1;
  };
  std::map<int64_t, Row> rows;  ///< by sample id
  bool is_sum = false;          ///< then weights are 1
  double tolerance = 0;         ///< relative
};

/// Nothing if the loss is not made so: then rows depend on each other, unless `is_coupled` is false.
struct TakenApart {
  std::optional<RowLosses> rows;
  bool is_coupled = false;  ///< the loss of all rows is far from any mean or sum of theirs
};
TakenApart taken_apart(const MeasuredRows& measured);

}  // namespace lockstep
