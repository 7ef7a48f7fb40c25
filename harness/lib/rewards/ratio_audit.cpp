#include "harness/lib/rewards/ratio_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "harness/base/numbers.h"
#include "harness/lib/rewards/chain.h"

namespace lockstep::rewards {
namespace {

/// An element of the chain: the first one whose ratio is not 1.
struct Element {
  const ShownRatio& shown;
  std::size_t at = 0;
  std::size_t row() const { return at / static_cast<std::size_t>(shown.length); }
  std::size_t step() const { return at % static_cast<std::size_t>(shown.length); }
};
using Fit = std::optional<std::string>;

Fit other_action(const Element& element) {
  if (element.shown.taken[element.at] == element.shown.scored[element.at]) return {};
  return "the action that is scored is not the one that was taken: its noise was drawn again";
}

Fit other_sigma(const Element& element) {
  const auto& drawn = element.shown.sigmas_rollout;
  const double found = element.shown.sigmas_update[element.step()];
  if (same_bits(found, drawn[element.step()])) return {};
  const auto same = std::ranges::find(drawn, found);
  const std::string whose = same == drawn.end() ? "of no step" : fmt::format("of step {}", same - drawn.begin());
  return fmt::format("sigma is {} ({}) and was {}", found, whose, drawn[element.step()]);
}

Fit other_policy(const Element& element) {
  if (element.shown.policy_rollout == element.shown.policy_update) return {};
  return "the actions were taken with another policy than the one that scores them";
}

Fit without_sigma(const Element& element) {
  const ShownRatio& shown = element.shown;
  int missing_in_new = 0, missing_in_old = 0, others = 0;
  for (std::size_t i = 0; i < shown.log_new.size(); ++i) {
    const std::size_t step = i % static_cast<std::size_t>(shown.length);
    const double terms = sigma_terms(shown.sigmas_rollout[step], shown.dims), by = shown.log_new[i] - shown.log_old[i];
    const double close = 1e-9 * (1 + std::abs(shown.log_old[i]) + std::abs(terms));
    if (std::abs(by + terms) <= close)
      ++missing_in_new;
    else if (std::abs(by - terms) <= close)
      ++missing_in_old;
    else
      ++others;
  }
  if (others > 0 || (missing_in_new > 0) == (missing_in_old > 0)) return {};
  return fmt::format("the log-probability of the {} lacks its {} terms of sigma",
                     missing_in_new > 0 ? "update" : "rollout", shown.dims);
}

Fit other_shape(const Element& element) {
  const ShownRatio& shown = element.shown;
  if (shown.rows_rollout == shown.rows_update) return {};
  for (std::size_t i = 0; i < shown.log_new.size(); ++i) {
    const double ulp = std::numeric_limits<double>::epsilon() * (1 + std::abs(shown.log_old[i]));
    if (!(std::abs(shown.log_new[i] - shown.log_old[i]) <= 32 * static_cast<double>(shown.dims) * ulp)) return {};
  }
  return fmt::format("the terms agree to rounding: {} rows were computed at once, and {} at the rollout", shown.rows_update,
                     shown.rows_rollout);
}

struct RatioQuestion {
  const char* code;
  Fit (*fits)(const Element& element);
};
constexpr RatioQuestion kRatioQuestions[] = {{"noise-drawn-again", other_action},
                                   {"sigma-of-another-step", other_sigma},
                                   {"stale-policy", other_policy},
                                   {"sigma-terms-missing", without_sigma},
                                   {"other-batch-shape", other_shape}};

Finding named(const Element& element, int rank) {
  const ShownRatio& shown = element.shown;
  Finding finding{"", {}, shown.step, {rank}, ""};
  std::string why = "no reason is known";
  for (const RatioQuestion& question : kRatioQuestions) {
    const Fit fit = question.fits(element);
    if (!fit) continue;
    if (!finding.code.empty()) {
      finding.also.emplace_back(question.code);
      continue;
    }
    finding.code = question.code;
    why = *fit;
  }
  if (finding.code.empty()) finding.code = "ratio-differs";
  finding.sentence = fmt::format(
      "step {}: rank {}: the ratio of sample {}, step {} of its chain, is {} and not 1 at the first update: {}; log pi {} and "
      "log pi_old {}",
      shown.step, rank, shown.ids[element.row()], element.step(), std::exp(shown.log_new[element.at] - shown.log_old[element.at]),
      why, shown.log_new[element.at], shown.log_old[element.at]);
  return finding;
}

}  // namespace

std::vector<Finding> audit_ratio(std::span<const ShownRatio> by_rank) {
  std::vector<Finding> findings;
  const uint64_t policy = most_frequent(by_rank, &ShownRatio::policy_rollout).policy_rollout;
  for (std::size_t at = 0; at < by_rank.size(); ++at) {
    const ShownRatio& shown = by_rank[at];
    const int rank = static_cast<int>(at);
    std::size_t first = 0;
    while (first < shown.log_new.size() && std::exp(shown.log_new[first] - shown.log_old[first]) == 1) ++first;
    if (first < shown.log_new.size()) {
      add(findings, named({shown, first}, rank));
    } else if (shown.policy_rollout != policy || shown.policy_update != policy) {
      add(findings, {"stale-policy", {}, shown.step, {rank},
                     fmt::format("step {}: rank {} has another policy than most ranks, and every ratio is 1 all the same",
                                 shown.step, rank)});
    } else if (!shown.probe.empty() && std::ranges::all_of(shown.probe, [](double ratio) { return ratio == 1; })) {
      add(findings, {"detached-from-itself", {}, shown.step, {rank},
                     fmt::format("step {}: rank {}: all {} ratios stay exactly 1 when the policy moves: {}", shown.step, rank,
                                 shown.probe.size(), help_of("detached-from-itself"))});
    }
  }
  return findings;
}

}  // namespace lockstep::rewards
