#pragma once
// The looks of `seeds: auto`: how many seeds each has, and which seeds a matrix has at one of them.

#include <string>
#include <vector>

#include "harness/verdict/config/problems.h"
#include "harness/verdict/plan/matrix.h"

namespace lockstep {

struct MatrixSource;

/// More looks than this show nothing more, and each costs a part of alpha.
inline constexpr int kMostAnalyses = 100;

/// Seeds at each look: first, first + step, ... and most.
std::vector<int> analysis_sizes(const SeedsAuto& seeds);

/// 0, 1, 2, ...: the seeds that a cell has at a look of `count`.
std::vector<int64_t> seeds_of_analysis(int count);

/// Gives each cell the seeds of its look, and the matrix the seeds of all cells.
///
///   counts  seeds of each cell, in the order of matrix.cells
void set_analysis(Matrix& matrix, const std::vector<int>& counts);

/// Reports looks that cannot be taken, and questions whose verdict more seeds do not change.
void check_seeds_auto(const MatrixSource& source, Problems& problems);

/// "5 to 40 seeds, 5 at a time".
std::string interim_analyses_in_words(const SeedsAuto& seeds);

}  // namespace lockstep
