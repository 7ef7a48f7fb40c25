#pragma once
// Normal draws in lockstep's own arithmetic.

#include <span>

namespace lockstep {

/// A standard normal by Box and Muller (1958): sqrt(-2 ln(1 - radius)) * cos(2 pi angle), from two uniforms
/// in [0, 1) that are multiples of 2^-53. Its error is at most 4e-16 of the square root.
///
/// Sums, products, quotients and square roots alone, each rounded as IEEE 754 says: a library's logarithm and
/// cosine may give other bits on another processor, and MKL's may give other bits when several threads make
/// its first call at once.
double standard_normal(double radius, double angle);

/// out[i] = standard_normal(radius[i], angle[i]), rounded once to float32. All three have one size.
void fill_normal(std::span<const float> radius, std::span<const float> angle, std::span<float> out);

}  // namespace lockstep
