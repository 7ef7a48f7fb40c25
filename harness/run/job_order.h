#pragma once
// In which order jobs of several widths are taken, so that the last of them ends early.

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// A job as its order sees it.
struct JobShape {
  double seconds = 0;
  int slots = 1;                       ///< from 1 to all
  std::size_t needs = 0;               ///< how many jobs must have finished
  std::vector<std::size_t> needed_by;  ///< which jobs count it in their `needs`
};

/// For each job: seconds from its start to the end of all that waits for it, if nothing else held it up.
/// Needs must be free of circles.
std::vector<double> seconds_to_the_end(std::span<const JobShape> jobs);

/// The jobs in the order in which they should be tried: whichever comes first and fits into the free slots
/// starts. Tries several rules (the longest first; width weighted against length), takes the one that ends
/// earliest by the estimates, and improves it by seeded trials while it is more than 1 % above the bound. The
/// same jobs give the same order.
std::vector<std::size_t> job_order(std::span<const JobShape> jobs, int slots);

/// When the last job ends if they are taken in this order and take as long as estimated.
double simulated_makespan(std::span<const JobShape> jobs, int slots, std::span<const std::size_t> order);

/// No order ends earlier: slots times seconds over the slots, the longest chain, and how often jobs of one
/// width fit beside each other (dual feasible functions, Fekete and Schepers 2001).
double makespan_bound(std::span<const JobShape> jobs, int slots);

}  // namespace lockstep
