#pragma once
// What a growing batch asks of the learning rate: which rule trains best, what the gradient noise scale
// predicts, and what was measured.

#include <array>
#include <vector>

#include "harness/answer/results/results.h"

namespace lockstep {

/// Exponents between which Adam's best rate grows in McCandlish et al. 2018, rate = most / (1 + B_noise /
/// B)^a; of SGD a is 1 (equation 2.15).
inline constexpr double kAdamLeast = 0.5, kAdamMost = 1.0;

/// d log(rate) / d log(batch), on average from one batch size to a larger one: a * log((1 + n / from) /
/// (1 + n / to)) / log(to / from) with n = noise_batch. From 0 (n = 0: all batches are large) to a (n
/// infinite).
double predicted_exponent(double noise_batch, int from_batch, int to_batch, double a);

/// Vertex of the parabola through three points; NaN if they lie on a line or the vertex is no maximum.
double parabola_maximum(const double (&x)[3], const double (&y)[3]);

/// Of the exponent in [x0, x2] at which the mean parabola is highest: the smallest interval that holds every v at which the mean
/// slope may be 0, or point out of [x0, x2] at its end, by Student's t over the seeds (Fieller 1954). x rises; values: of a seed at
/// each x. Among normal values it holds the true exponent with probability `level` at least. Infinite for one seed.
Interval exponent_interval(const double (&x)[3], const std::vector<std::array<double, 3>>& values, double level);

/// One entry for each group of cells that differ only in the rule of the learning rate (and the betas and
/// epsilon that go with it) and share one reference; but for the rule, reference and cells differ only in
/// layout. The cells' global batch is larger than the reference's, or equal to it if some rule changes the
/// rate although none is called for. Cells without an outcome are listed and take no part; a group of such
/// cells alone is left out. `cells` are the matrix's, in its order.
std::vector<Growth> judge_growth(const Matrix& matrix, const std::vector<CellResult>& cells);

}  // namespace lockstep
