#pragma once
// Are these the advantages of the whole batch by the declared convention, and if not, of what are they? Answered from the
// rows that all ranks show.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/lib/rewards/advantages.h"
#include "harness/lib/rewards/exchange.h"
#include "harness/lib/rewards/failure.h"

namespace lockstep::rewards {

/// What one rank shows after its advantages.
struct ShownAdvantages {
  int64_t step = 0;
  Rows rows;                      ///< its own, in its order
  int64_t kl_rows = 0;            ///< of all ranks, of the collective that brought KL terms; 0: they came with the rewards
  int64_t count = 0;              ///< of the batch's statistics that it used
  double mean = 0, deviation = 0;
  std::vector<double> advantages; ///< of its rows; empty under a problem
  std::string problem;            ///< why it has none
  template <class Self, class Archive>
  static void fields(Self& s, Archive& a) {
    a(s.step, s.rows, s.kl_rows, s.count, s.mean, s.deviation, s.advantages, s.problem);
  }
};

struct AdvantageOptions {
  Estimator estimator = Estimator::global;
  Convention convention = {};
  double beta = 0;  ///< of KL
};

/// The batch as the audit sees it: rows of all ranks by ascending id.
struct AuditedBatch {
  Rows rows;
  std::vector<int> ranks;                      ///< of each row
  std::vector<double> values;                  ///< rewards less beta * KL
  std::vector<uint8_t> counted;                ///< after the convention's screen
  std::vector<std::vector<std::size_t>> own;   ///< places of each rank's rows, in its order
  std::string problem;                         ///< the convention refuses a row
  AdvantageOptions options;
  Advantages expected;
};

/// Something else that the advantages might be: values for every row as `rank` would have them, or nothing where this
/// cannot be, or would be no difference.
struct AdvantageHypothesis {
  const char* code;
  std::optional<std::vector<double>> (*predict)(const AuditedBatch& batch, int rank, const Statistics* before);
};
std::span<const AdvantageHypothesis> advantage_hypotheses();

class AdvantageAudit {
 public:
  explicit AdvantageAudit(const AdvantageOptions& options) : options_(options) {}
  /// What is wrong in this step; `by_rank` is of all ranks.
  std::vector<Finding> step(std::span<const ShownAdvantages> by_rank);

 private:
  AdvantageOptions options_;
  std::optional<Statistics> before_;  ///< of the step before
};

}  // namespace lockstep::rewards
