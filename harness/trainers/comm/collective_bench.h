#pragma once
// Times collectives of a real backend, and looks at every element of what they give.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/trainers/comm/gloo_options.h"

namespace lockstep {

struct CollectiveTiming {
  double seconds = 0;        ///< of one call, in the mean over the timed ones
  int64_t wrong = 0;         ///< elements that are not what they should be, before and after the timed calls
  int64_t first_wrong = -1;  ///< the first of them
  double got = 0, expected = 0;
  std::string error;         ///< the backend refused the call
};

/// Ranks that meet once and then call collectives, all the same ones in the same order. Sums are over whole numbers, so that any
/// order of adding gives the same bits.
class CollectiveBench {
 public:
  /// Meets the others over Gloo. Throws std::runtime_error.
  explicit CollectiveBench(const GlooOptions& options);
  ~CollectiveBench();
  /// `count`: float32 elements of the larger of what a rank brings and what it gets, a multiple of the world's size. `spoil`: the
  /// element of what this rank got that is changed before it is looked at; -1: none.
  CollectiveTiming time(std::string_view collective, int64_t count, int64_t calls, int64_t spoil = -1);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
