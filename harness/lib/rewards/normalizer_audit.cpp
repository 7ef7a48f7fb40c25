#include "harness/lib/rewards/normalizer_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::rewards {
namespace {

bool same(const Moments& a, const Moments& b) {
  return a.count == b.count && same_bits(a.mean, b.mean) && same_bits(a.m2, b.m2);
}

/// The same to rounding: of what was added up in another order.
bool close(const Moments& a, const Moments& b) {
  const double size = std::abs(a.mean) + std::abs(b.mean) + std::sqrt(std::max(a.m2, 0.0) / std::max<double>(1, static_cast<double>(a.count)));
  return a.count == b.count && std::abs(a.mean - b.mean) <= 1e-9 * size && std::abs(a.m2 - b.m2) <= 1e-9 * (a.m2 + b.m2);
}

std::string in_words(const Moments& moments) {
  return fmt::format("{} rows of mean {} and squares {}", moments.count, moments.mean, moments.m2);
}

Moments merged(Moments state, std::span<const ShownNormalizer> by_rank) {
  for (const ShownNormalizer& each : by_rank) state = merge(state, each.sent);
  return state;
}

/// Sums of squares added as they are.
Moments without_between(Moments state, std::span<const ShownNormalizer> by_rank) {
  double within = state.m2;
  for (const ShownNormalizer& each : by_rank) within += each.sent.m2;
  state = merged(state, by_rank);
  state.m2 = within;
  return state;
}

std::string sentence_of(const ShownNormalizer& shown, int rank, const char* code, const Moments& expected,
                        const Moments& found) {
  return fmt::format("step {}: rank {}: {}; expected {}, found {}", shown.step, rank, help_of(code), in_words(expected),
                     in_words(found));
}

}  // namespace

NormalizerAudit::NormalizerAudit(int ranks)
    : total_(static_cast<std::size_t>(ranks)), delta_(static_cast<std::size_t>(ranks)) {}

void NormalizerAudit::check_before(std::span<const ShownNormalizer> by_rank, std::vector<Finding>& findings) const {
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const Moments found = by_rank[rank].before;
    if (same(found, total_[rank])) continue;
    const char* code = found.count == 0 && total_[rank].count > 0 ? "normalizer-not-seeded" : "merge-differs";
    add(findings, {code, {}, by_rank[rank].step, {static_cast<int>(rank)},
                   sentence_of(by_rank[rank], static_cast<int>(rank), code, total_[rank], found)});
  }
}

void NormalizerAudit::check_sent(std::span<const ShownNormalizer> by_rank, std::vector<Finding>& findings) const {
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const ShownNormalizer& shown = by_rank[rank];
    const Moments found = shown.sent, expected = delta_[rank];
    if (same(found, expected)) continue;
    const Moments whole = merge(shown.before, expected);
    const char* code = "merge-differs";
    if (shown.before.count > 0 && close(found, whole)) code = "history-counted-again";
    if (found.count < expected.count) code = "delta-lost";
    add(findings, {code, {}, shown.step, {static_cast<int>(rank)},
                   sentence_of(shown, static_cast<int>(rank), code, expected, found)});
  }
}

void NormalizerAudit::check_after(std::span<const ShownNormalizer> by_rank, std::vector<Finding>& findings) const {
  const auto merging = std::ranges::count_if(by_rank, &ShownNormalizer::merged);
  const bool all_merge = 2 * merging > static_cast<std::ptrdiff_t>(by_rank.size()) ||
                         (2 * merging == static_cast<std::ptrdiff_t>(by_rank.size()) && by_rank.front().merged);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const ShownNormalizer& shown = by_rank[rank];
    const auto tell = [&](const char* code, const Moments& expected) {
      add(findings, {code, {}, shown.step, {static_cast<int>(rank)},
                     sentence_of(shown, static_cast<int>(rank), code, expected, shown.after)});
    };
    const Moments before = shown.before, found = shown.after;
    const Moments expected = all_merge ? merged(before, by_rank) : before;
    if (shown.merged != all_merge) {
      tell(all_merge ? "merge-skipped" : "merged-early", expected);
      continue;
    }
    if (same(found, expected)) continue;
    if (!all_merge)
      tell("merged-early", expected);
    else if (same(found, before))
      tell("merge-skipped", expected);
    else if (by_rank.size() > 1 && close(found, merge(before, shown.sent)))
      tell("normalizer-local", expected);
    else if (close(found, merged(expected, by_rank)))
      tell("merged-twice", expected);
    else if (close(found, without_between(before, by_rank)))
      tell("normalizer-between-missing", expected);
    else
      tell("merge-differs", expected);
  }
}

std::vector<Finding> NormalizerAudit::step(std::span<const ShownNormalizer> by_rank) {
  std::vector<Finding> findings;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    delta_[rank] = merge(delta_[rank], by_rank[rank].added);
    if (by_rank[rank].step == by_rank[0].step) continue;
    add(findings, {"header-differs", {}, by_rank[0].step, {static_cast<int>(rank)},
                   fmt::format("step {}: rank {} is at step {} and rank 0 at step {}", by_rank[0].step, rank,
                               by_rank[rank].step, by_rank[0].step)});
  }
  if (!findings.empty()) return findings;
  check_before(by_rank, findings);
  check_sent(by_rank, findings);
  check_after(by_rank, findings);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    total_[rank] = by_rank[rank].after;
    if (by_rank[rank].merged) delta_[rank] = {};
  }
  return findings;
}

}  // namespace lockstep::rewards
