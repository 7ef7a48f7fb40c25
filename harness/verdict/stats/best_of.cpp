#include "harness/verdict/stats/best_of.h"

#include <algorithm>

#include "harness/verdict/stats/decision.h"
#include "harness/verdict/stats/spending.h"

namespace lockstep {
namespace {

/// "Arm `worse` is no worse than arm `better`", and how far its pairs speak against that.
struct Hypothesis {
  std::size_t worse = 0, better = 0;
  int n = 0;
  double p = 1;
  bool rejected = false;
};

Hypothesis tested(const std::vector<const DifferenceBySeed*>& arms, std::size_t worse, std::size_t better,
                  const BestOf& how) {
  std::vector<double> lost;
  for (const auto& [seed, value] : *arms[worse]) {
    const auto other = arms[better]->find(seed);
    if (other != arms[better]->end()) lost.push_back(how.sense * (other->second - value));
  }
  return {worse, better, static_cast<int>(lost.size()), p_above_zero(lost, how.primary.test)};
}

/// What p may be with so many pairs so that a test has this level over all its looks.
double nominal_at(int n, double level, const BestOf& how) {
  if (!how.looks.on) return level;
  for (const SpendingAnalysis& look : spending_analyses(how.looks, level, how.primary.test)) {
    if (look.n == n) return look.nominal;
  }
  return 0;
}

}  // namespace

std::vector<bool> shown_worse(const std::vector<const DifferenceBySeed*>& arms, const BestOf& how) {
  std::vector<Hypothesis> family;
  for (std::size_t worse = 0; worse < arms.size(); ++worse) {
    for (std::size_t better = 0; better < arms.size(); ++better) {
      if (worse != better) family.push_back(tested(arms, worse, better, how));
    }
  }
  std::vector<bool> shown(arms.size(), false);
  // Holm's steps, several at once: what is rejected leaves a larger level for the rest.
  for (std::size_t left = family.size(), before = left + 1; left > 0 && left < before;) {
    before = left;
    const double level = how.primary.alpha / static_cast<double>(left);
    for (Hypothesis& hypothesis : family) {
      // No look has a larger level than all of them together, so that most need not be asked for.
      if (hypothesis.rejected || hypothesis.p > level) continue;
      if (hypothesis.p > nominal_at(hypothesis.n, level, how)) continue;
      hypothesis.rejected = shown[hypothesis.worse] = true;
      --left;
    }
  }
  return shown;
}

}  // namespace lockstep
