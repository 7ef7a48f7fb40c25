#include "harness/answer/stats/spending.h"

#include <boost/math/distributions/beta.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/beta.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <tuple>

#include "harness/answer/stats/estimates.h"
#include "harness/plan/matrix/matrix.h"

namespace lockstep {
namespace {

/// Bounds of the cells of the recursion, as standard normal scores of upper tail probabilities: falling.
constexpr double kHighest = 6.0, kLowest = -4.0, kWidth = 0.05;
constexpr int kGridCells = 200;

double upper_tail(double score) {
  return boost::math::cdf(boost::math::complement(boost::math::normal(), score));
}

/// u of n values whose t has the upper tail probability of this score.
double share_of(double score, int n) {
  const double tail = upper_tail(std::abs(score));
  const double t = boost::math::quantile(boost::math::complement(boost::math::students_t(n - 1.0), tail));
  const double u = t / std::hypot(std::sqrt(n - 1.0), t);
  return score < 0 ? -u : u;
}

/// P(u > x) of m values by themselves, from a table.
class ShareTail {
 public:
  explicit ShareTail(int m) : m_(m) {
    if (m == 1) return;
    for (int i = 0; i <= kBins; ++i) {
      const double x = 2.0 * i / kBins - 1.0;
      const double half = 0.5 * boost::math::ibetac(0.5, (m - 1) / 2.0, std::min(1.0, x * x));
      table_.push_back(x < 0 ? 1 - half : half);
    }
  }
  double operator()(double x) const {
    if (x >= 1) return 0;
    if (x <= -1) return 1;
    if (m_ == 1) return 0.5;  // one value is all of its own sum: u is 1 or -1
    const double at = (x + 1) * (kBins / 2.0);
    const auto bin = static_cast<std::size_t>(at);
    const double part = at - static_cast<double>(bin);
    return table_[bin] + part * (table_[bin + 1] - table_[bin]);
  }

 private:
  static constexpr int kBins = 2048;
  int m_;
  std::vector<double> table_;
};

/// What is left of the chain after a look: probability mass of each cell, and where in u it lies.
struct Mass {
  std::vector<double> score = std::vector<double>(kGridCells), mass = std::vector<double>(kGridCells);
};

double edge(int i) { return kHighest - kWidth * i; }

/// From P(u above edge i, nothing rejected before) to the level of this look, and what goes on from it.
double cut(const std::vector<double>& above, double spend, Mass& left) {
  int first = 0;  // the edge from which on more than `spend` lies above
  while (first <= kGridCells && above[static_cast<std::size_t>(first)] <= spend) ++first;
  double bound = edge(first);
  if (first > 0 && first <= kGridCells) {
    const double low = above[static_cast<std::size_t>(first) - 1],
                 high = above[static_cast<std::size_t>(first)];
    const double share =
        low > 0 ? std::log(spend / low) / std::log(high / low) : (spend - low) / (high - low);
    bound = edge(first - 1) - kWidth * share;
  }
  for (int i = 0; i < kGridCells; ++i) {
    const auto cell = static_cast<std::size_t>(i);
    const bool is_cut = i + 1 == first;
    left.score[cell] = ((is_cut ? bound : edge(i)) + edge(i + 1)) / 2;
    left.mass[cell] = i + 1 < first ? 0 : above[cell + 1] - (is_cut ? spend : above[cell]);
  }
  return upper_tail(bound);
}

/// P(u above each edge) of n + m values, for those whose first n have not been rejected.
std::vector<double> advance(const Mass& from, int n, int m) {
  const int points = m == 1 ? 192 : 48;
  const ShareTail tail(m);
  const boost::math::beta_distribution<> share_of_squares(n / 2.0, m / 2.0);
  std::vector<double> keeps, adds;  // what the first n and the next m weigh in u
  for (int q = 0; q < points; ++q) {
    const double old = boost::math::quantile(share_of_squares, (q + 0.5) / points);
    keeps.push_back(std::sqrt(old * n / (n + m)));
    adds.push_back(std::sqrt((1 - old) * m / (n + m)));
  }
  std::vector<double> bounds;
  for (int j = 0; j <= kGridCells; ++j) bounds.push_back(share_of(edge(j), n + m));
  std::vector<double> above(kGridCells + 1, 0.0);
  for (std::size_t i = 0; i < kGridCells; ++i) {
    if (from.mass[i] <= 0) continue;
    const double u = share_of(from.score[i], n), weight = from.mass[i] / points;
    for (std::size_t q = 0; q < keeps.size(); ++q) {
      const double kept = keeps[q] * u, per = 1 / adds[q];
      for (std::size_t j = 0; j <= kGridCells; ++j) above[j] += weight * tail((bounds[j] - kept) * per);
    }
  }
  return above;
}

/// What the looks may spend, without their levels.
std::vector<SpendingAnalysis> planned_analyses(const SeedsAuto& seeds, double alpha) {
  std::vector<SpendingAnalysis> looks;
  for (const int n : analysis_sizes(seeds)) {
    const double information = static_cast<double>(n) / seeds.most;
    const double spent = n == seeds.most ? alpha : alpha * std::log1p((std::numbers::e - 1) * information);
    looks.push_back({n, information, spent, 0});
  }
  return looks;
}

/// Of one one-sided sign test. walk[k]: P(k of n differences on one side, nothing rejected before).
std::vector<SpendingAnalysis> one_sided_sign_analyses(const SeedsAuto& seeds, double alpha) {
  std::vector<SpendingAnalysis> looks = planned_analyses(seeds, alpha);
  std::vector<double> walk{1.0};
  double spent = 0;
  for (SpendingAnalysis& look : looks) {
    while (static_cast<int>(walk.size()) <= look.n) {
      walk.push_back(0);
      for (std::size_t k = walk.size() - 1; k > 0; --k) walk[k] = (walk[k] + walk[k - 1]) / 2;
      walk[0] /= 2;
    }
    int count = look.n + 1;
    while (count > 0 && spent + walk[static_cast<std::size_t>(count) - 1] <= look.spent) {
      spent += walk[static_cast<std::size_t>(--count)];
      walk[static_cast<std::size_t>(count)] = 0;
    }
    look.nominal = count <= look.n ? sign_tail(look.n, count) : sign_tail(look.n, look.n) / 2;
  }
  return looks;
}

/// Of one one-sided t test.
std::vector<SpendingAnalysis> one_sided_analyses(const SeedsAuto& seeds, double alpha) {
  std::vector<SpendingAnalysis> looks;
  Mass left;
  double spent = 0;
  for (SpendingAnalysis look : planned_analyses(seeds, alpha)) {
    std::vector<double> above;
    if (looks.empty()) {
      for (int j = 0; j <= kGridCells; ++j) above.push_back(upper_tail(edge(j)));
    } else {
      above = advance(left, looks.back().n, look.n - looks.back().n);
    }
    look.nominal = cut(above, look.spent - spent, left);
    spent = look.spent;
    looks.push_back(look);
  }
  return looks;
}

}  // namespace

std::vector<SpendingAnalysis> spending_analyses(const SeedsAuto& seeds, double alpha, OutcomeTest test) {
  static std::mutex mutex;
  static std::map<std::tuple<int, int, int, double, OutcomeTest>, std::vector<SpendingAnalysis>> known;
  const std::lock_guard lock(mutex);
  auto& looks = known[{seeds.first, seeds.step, seeds.most, alpha, test}];
  if (looks.empty()) {
    const auto one_sided = test == OutcomeTest::sign ? &one_sided_sign_analyses : &one_sided_analyses;
    const std::vector<SpendingAnalysis> halves = one_sided(seeds, alpha / 2);
    looks = one_sided(seeds, alpha);
    for (std::size_t i = 0; i < looks.size(); ++i)
      looks[i].nominal = std::min(looks[i].nominal, 2 * halves[i].nominal);
  }
  return looks;
}

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
