#include "harness/jobs/orders/rewards/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "harness/base/hashing.h"
#include "harness/base/numbers.h"

namespace lockstep::rewards {
namespace {

constexpr std::array<std::string_view, 9> kKinds{"normal",      "constant", "near constant", "mean 10,000", "sparse binary",
                                                 "heavy tails", "infinite", "NaN",           "NaN in KL"};
constexpr std::array<std::string_view, 7> kFaults{"none",
                                                  "reward function throws",
                                                  "reward function hangs",
                                                  "reward function gives too few",
                                                  "reward function gives NaN",
                                                  "a rank ends",
                                                  "a rank hangs"};

/// Draws in the order in which they are asked for.
class Draws {
 public:
  explicit Draws(uint64_t key) : key_(key) {}
  double unit() { return unit_interval(keyed(key_, next_++)); }
  int64_t below(int64_t count) { return std::min(count - 1, static_cast<int64_t>(unit() * static_cast<double>(count))); }
  bool one_in(int64_t count) { return below(count) == 0; }
  double normal() {
    const double radius = unit();
    return standard_normal(radius, unit());
  }

 private:
  uint64_t key_;
  uint64_t next_ = 0;
};

/// Those that projects use; tests/harness/lib/rewards/convention_test.cpp tells which.
Convention drawn_convention(Draws& draws) {
  using enum EpsilonPlace;
  using enum FloorPlace;
  static const std::array kAll{
      Convention{},
      Convention{1, 1e-4, outside, 0, deviation},
      Convention{1, 1e-6, outside, 0, deviation, NonFinite::refuse, GroupOfOne::raw},
      Convention{1, 1e-8, inside, 0, deviation},
      Convention{0, 0, outside, 1e-8, variance},
      Convention{0, 1e-8, outside, 0, deviation},
      Convention{0, 1e-4, outside, 0, deviation},
      Convention{0, 1e-3, inside, 1e-2, variance},
  };
  Convention drawn = kAll[static_cast<std::size_t>(draws.below(static_cast<int64_t>(kAll.size())))];
  if (draws.one_in(2)) drawn.non_finite = NonFinite::mask;
  return drawn;
}

double drawn_reward(RewardKind kind, Draws& draws) {
  switch (kind) {
    case RewardKind::constant: return 0.3;
    case RewardKind::near_constant: return 1 + 1e-7 * draws.normal();
    case RewardKind::large_mean: return 1e4 + draws.normal();
    case RewardKind::sparse_binary: return draws.one_in(8) ? 1 : 0;
    case RewardKind::heavy_tails: return draws.normal() / (0.01 + draws.unit());
    case RewardKind::infinite:
      return draws.one_in(10) ? (draws.one_in(2) ? 1 : -1) * std::numeric_limits<double>::infinity() : draws.normal();
    case RewardKind::not_a_number: return draws.one_in(10) ? std::numeric_limits<double>::quiet_NaN() : draws.normal();
    default: return draws.normal();
  }
}

/// Rows a rank: none, one, few, or up to 64.
int64_t drawn_rows(Draws& draws) {
  switch (draws.below(8)) {
    case 0: return 0;
    case 1: return 1;
    case 2: return draws.below(65);
    default: return 2 + draws.below(15);
  }
}

/// Which rank holds which of the rows, in a random order of ranks.
std::vector<int> partitioned_to(const std::vector<int64_t>& rows, Draws& draws) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < rows.size(); ++rank)
    ranks.insert(ranks.end(), static_cast<std::size_t>(rows[rank]), static_cast<int>(rank));
  for (std::size_t i = ranks.size(); i > 1; --i) std::swap(ranks[i - 1], ranks[static_cast<std::size_t>(draws.below(static_cast<int64_t>(i)))]);
  return ranks;
}

void add_row(CaseStep& step, int64_t id, int64_t group, double reward, double kl, bool counted, int64_t steps, int64_t micro) {
  step.rows.ids.push_back(id);
  step.rows.groups.push_back(group);
  step.rows.rewards.push_back(reward);
  step.rows.kl.push_back(kl);
  step.rows.counted.push_back(counted ? 1 : 0);
  step.rows.steps.push_back(steps);
  step.rows.micro.push_back(micro);
}

std::vector<double> drawn_sigmas(int64_t length, Draws& draws) {
  std::vector<double> sigmas;
  for (int64_t i = 0; i < length; ++i) sigmas.push_back(0.1 + 0.3 * static_cast<double>(i) + 0.1 * draws.unit());
  return sigmas;
}

CaseStep drawn_step(const Case& one, int64_t at, int64_t parts, Draws& draws) {
  CaseStep step;
  std::vector<int64_t> sizes;
  for (int rank = 0; rank < one.world; ++rank) sizes.push_back(drawn_rows(draws));
  step.ranks = partitioned_to(sizes, draws);
  const int64_t group_size = 1 + draws.below(8);
  for (std::size_t i = 0; i < step.ranks.size(); ++i) {
    const double kl = one.kind == RewardKind::kl_not_a_number && draws.one_in(12)
                          ? std::numeric_limits<double>::quiet_NaN()
                          : 0.1 * draws.normal();
    const auto place = static_cast<int64_t>(i);
    add_row(step, 1000 * at + 3 * place, place / group_size, drawn_reward(one.kind, draws), kl, !draws.one_in(10),
            1 + draws.below(9), draws.below(parts));
  }
  step.merges = draws.one_in(2);
  step.filtered = draws.below(3);
  return step;
}

}  // namespace

std::string_view name_of(RewardKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }
std::string_view name_of(FaultKind kind) { return kFaults[static_cast<std::size_t>(kind)]; }

Case make_case(uint64_t seed, int64_t number, int world) {
  Case one;
  one.key = keyed(seed, number, world);
  one.number = number;
  one.world = world;
  Draws draws(one.key);
  one.kind = static_cast<RewardKind>(draws.below(static_cast<int64_t>(kKinds.size())));
  one.convention = drawn_convention(draws);
  one.estimator = static_cast<Estimator>(draws.below(4));
  one.denominator = static_cast<Denominator>(draws.below(4));
  one.scope = static_cast<Scope>(draws.below(3));
  one.constant = static_cast<double>(8 + draws.below(64));
  one.beta = draws.one_in(2) ? 0 : 0.1;
  one.root = static_cast<int>(draws.below(world));
  one.chain = {1 + draws.below(4), 1 + draws.below(4)};
  one.sigmas = drawn_sigmas(one.chain.length, draws);
  const int64_t steps = 2 + draws.below(2), parts = 1 + draws.below(3);
  for (int64_t at = 0; at < steps; ++at) one.steps.push_back(drawn_step(one, at, parts, draws));
  if (draws.one_in(2)) one.resumes_before = 1;
  return one;
}

Case make_telling_case(uint64_t seed, int64_t number, int world) {
  Case one;
  one.key = keyed(seed, number, world, 1);
  one.number = number;
  one.world = world;
  Draws draws(one.key);
  // Epsilon and floor that show beside the deviation of the rewards.
  one.convention = {0, 1e-3, EpsilonPlace::outside, 0, FloorPlace::deviation, NonFinite::refuse, GroupOfOne::zero};
  one.root = static_cast<int>(draws.below(world));
  one.chain = {4, 5};
  one.sigmas = drawn_sigmas(one.chain.length, draws);
  one.constant = 40;
  // Another number than that of the ranks, or one factor would have two causes.
  const int64_t group = 4, parts = world == 3 ? 2 : 3;
  for (int64_t at = 0; at < 3; ++at) {
    CaseStep step;
    std::vector<int64_t> sizes;
    for (int rank = 0; rank < world; ++rank) sizes.push_back(6 + 2 * rank + draws.below(2));
    step.ranks = partitioned_to(sizes, draws);
    std::vector<int64_t> seen(static_cast<std::size_t>(world), 0);
    for (std::size_t i = 0; i < step.ranks.size(); ++i) {
      const int rank = step.ranks[i];
      const auto place = static_cast<int64_t>(i);
      const int64_t nth = seen[static_cast<std::size_t>(rank)]++;
      add_row(step, 1000 * at + 3 * place, place / group, draws.normal() + 0.7 * rank, 0.5 + draws.unit(), nth != 1,
              1 + draws.below(9), nth % parts);
    }
    step.merges = true;
    step.filtered = 1 + draws.below(3);
    one.steps.push_back(std::move(step));
  }
  return one;
}

Case in_one_process(const Case& all) {
  Case one = all;
  one.world = 1;
  one.root = 0;
  for (CaseStep& step : one.steps) std::ranges::fill(step.ranks, 0);
  return one;
}

Rows rows_of(const CaseStep& step, int rank) {
  Rows rows;
  for (std::size_t i = 0; i < step.ranks.size(); ++i) {
    if (step.ranks[i] == rank) rows.append(step.rows, i);
  }
  return rows;
}

std::string in_words(const Case& one) {
  return fmt::format("case {} on {} ranks: rewards {}, estimator {}, {}", one.number, one.world, name_of(one.kind),
                     words_of(one.estimator)[static_cast<std::size_t>(one.estimator)], in_words(one.convention));
}

}  // namespace lockstep::rewards
