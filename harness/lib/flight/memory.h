#pragma once
// A process's resident memory over its steps, and whether it grows without end.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::flight {

/// Resident bytes by step, thinned so that a run of any length keeps at most 512 of them, evenly spaced.
class MemorySeries {
 public:
  void add(int64_t step, int64_t bytes);
  const std::vector<int64_t>& steps() const { return steps_; }
  const std::vector<double>& bytes() const { return bytes_; }

 private:
  int64_t stride_ = 1, seen_ = 0;
  std::vector<int64_t> steps_;
  std::vector<double> bytes_;
};

/// A growth that goes on.
struct Leak {
  double bytes_a_step = 0;  ///< the median of the slopes between all pairs of points (Theil and Sen)
  double z = 0;             ///< of Mann and Kendall's test against no trend
  double grown_bytes = 0;   ///< over the steps that were looked at
};

/// Leaves out the first fifth, in which memory takes shape. A leak is a trend with z above 4 whose slope, over the steps, adds
/// up to more than 2 % of the memory and more than a MiB, and that is there in the first and in the second half alike. Nothing
/// is said of fewer than 40 points.
std::optional<Leak> leak_in(const std::vector<int64_t>& steps, const std::vector<double>& bytes);

/// "memory grows by 1.05 MB a step (52.4 MB over 50 steps)"
std::string in_words(const Leak& leak);

}  // namespace lockstep::flight
