#pragma once
// Does a running normaliser hold what all ranks have seen, each row once? Answered from what ranks show at each step.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/rewards/failure.h"
#include "harness/rewards/normalizer.h"

namespace lockstep::rewards {

/// Moments as ranks show them.
struct ShownMoments {
  int64_t count = 0;
  double mean = 0, m2 = 0;
  template <class Self, class Archive>
  static void fields(Self& s, Archive& a) {
    a(s.count, s.mean, s.m2);
  }
  Moments moments() const { return {count, mean, m2}; }
};
inline ShownMoments shown(const Moments& moments) { return {moments.count, moments.mean, moments.m2}; }

/// What one rank shows of a step.
struct ShownNormalizer {
  int64_t step = 0;
  int64_t merges = 0;   ///< so far, after this step
  bool merged = false;  ///< in this step
  ShownMoments before;  ///< merged state at the step's begin
  ShownMoments added;   ///< of this step's rows, before any merge
  ShownMoments sent;    ///< to the others; of a step without a merge what it would have sent
  ShownMoments after;   ///< merged state at the step's end
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
