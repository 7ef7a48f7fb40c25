#pragma once
// What a forced run's trace holds at one step, as numbers.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/align.h"

namespace lockstep {

struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<double> values;
};

/// One row of energies with the sample ids of its columns.
struct EnergyRow {
  int64_t row_id = 0;
  int rank = 0;
  std::vector<double> values;
};

struct Energies {
  std::vector<EnergyRow> rows;
  std::vector<std::vector<int64_t>> columns;  ///< by rank; the rows of a rank share them
};

struct ForcedValues {
  int64_t step = 0;
  std::vector<NamedTensor> gradients, term_sums;
  std::optional<Energies> energies;
  std::optional<double> loss;           ///< mean over ranks
  std::optional<double> gradient_norm;
};

/// Throws TraceError if the reduced gradients were not kept whole.
ForcedValues forced_values(const StepOfRun& step, const std::string& run_dir);

/// |a - b|; 0 for equal bits (two NaN, two infinities), infinite where only one of them is a number.
double distance(double a, double b);

/// sqrt of the sum of squared distances. Sizes must be equal.
double distance(const std::vector<double>& a, const std::vector<double>& b);
double norm(const std::vector<double>& values);

struct EnergyDifference {
  double largest = 0;               ///< over all energies that both have
  int64_t row_id = -1, column_id = -1;
  int rank = 0;                     ///< of the other run
  double expected = 0, actual = 0;
  int64_t compared = 0;
  int64_t missing_rows = 0;
  // Of the row that lacks most columns, or else has most of its own:
  int64_t expected_columns = 0, actual_columns = 0, missing_columns = 0, extra_columns = 0;
  int columns_rank = 0;
  bool every_rank_differs = false;  ///< in its columns
};

/// Aligns by (row id, column id); a repeated id meets the reference's repetitions in order.
EnergyDifference energy_difference(const Energies& reference, const Energies& other);

/// Largest |E| among finite energies.
double largest_energy(const Energies& energies);

}  // namespace lockstep
