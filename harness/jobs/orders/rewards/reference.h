#pragma once
// What one process computes of the same rows, in arithmetic of 34 digits and by the plain formulas: no code in common with
// the library.

#include <string>

#include "harness/jobs/orders/rewards/play.h"

namespace lockstep::rewards {

/// How far a step lies from the reference. 1 ulp is 2^-52 of the named size.
struct Distances {
  double mean_ulp = 0;       ///< of |mean|, where the mean's condition is below 10^6; else of max|r|
  double deviation_ulp = 0;  ///< of the deviation
  double advantage_ulp = 0;  ///< of max|r| / sigma, sigma the deviation with floor and epsilon
  double normalizer_ulp = 0; ///< mean of the merged state, of max|r|
  double mean_condition = 0, deviation_condition = 0;  ///< where they are finite
  std::string problem;       ///< what does not even have the same shape
};

/// Steps of a case that was played, all its steps, against the case itself.
Distances distances(const Case& one, const std::vector<StepNumbers>& steps);

/// What the case must come to if nothing is planted: "" (it is finished), or the code of its failure.
std::string expected_failure(const Case& one);

/// Greatest of both.
void widen(Distances& all, const Distances& more);

}  // namespace lockstep::rewards
