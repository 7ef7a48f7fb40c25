#pragma once
// Does a running normaliser hold what all ranks have seen, each row once? Answered from what ranks show at each step.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/lib/rewards/failure.h"
#include "harness/lib/rewards/normalizer.h"

namespace lockstep::rewards {

/// What one rank shows of a step.
struct ShownNormalizer {
  int64_t step = 0;
  int64_t merges = 0;   ///< so far, after this step
  bool merged = false;  ///< in this step
  Moments before;  ///< merged state at the step's begin
  Moments added;   ///< of this step's rows, before any merge
  Moments sent;    ///< to the others; of a step without a merge what it would have sent
  Moments after;   ///< merged state at the step's end
  template <class Self, class Archive>
  static void fields(Self& s, Archive& a) {
    a(s.step, s.merges, s.merged, s.before, s.added, s.sent, s.after);
  }
};

class NormalizerAudit {
 public:
  explicit NormalizerAudit(int ranks);
  /// What is wrong in this step; `by_rank` is of all ranks. Once a rank was found wrong it is held to what it shows from
  /// then on, so that one mistake is told once.
  std::vector<Finding> step(std::span<const ShownNormalizer> by_rank);

 private:
  void check_before(std::span<const ShownNormalizer> by_rank, std::vector<Finding>& findings) const;
  void check_sent(std::span<const ShownNormalizer> by_rank, std::vector<Finding>& findings) const;
  void check_after(std::span<const ShownNormalizer> by_rank, std::vector<Finding>& findings) const;

  std::vector<Moments> total_;  ///< merged state by rank, as it should be
  std::vector<Moments> delta_;  ///< what each rank has added since
};

}  // namespace lockstep::rewards
