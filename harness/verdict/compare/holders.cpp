#include "harness/verdict/compare/holders.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "harness/base/same_bits.h"
#include "harness/base/word_list.h"
#include "harness/verdict/compare/rounding_bound.h"
#include "harness/verdict/compare/step_records.h"

namespace lockstep {
namespace {

bool alike(const Record& a, const Record& b) {
  if (a.is_scalar) return b.is_scalar && same_bits(a.value, b.value);
  return a.dtype == b.dtype && a.shape == b.shape && a.stats.hash == b.stats.hash;
}

/// How far it lies from the reference's, by its size; nothing where the traces do not tell.
std::optional<double> gap_to(const Record& reference, const Record& record) {
  const auto apart = [](double x, double y) { return x == y ? 0 : std::isfinite(x - y) ? std::abs(x - y) : std::numeric_limits<double>::infinity(); };
  constexpr double kLeast = std::numeric_limits<double>::min();
  if (record.is_scalar) return apart(reference.value, record.value) / std::max(std::abs(reference.value), kLeast);
  if (!record.has_stats || !reference.has_stats || record.shape != reference.shape) return std::nullopt;
  if (record.stats.nonfinite != reference.stats.nonfinite) return std::numeric_limits<double>::infinity();
  const TensorStats &x = reference.stats, &y = record.stats;
  return std::max({apart(x.norm, y.norm), apart(x.min, y.min), apart(x.max, y.max)}) / std::max(x.norm, kLeast);
}

/// The group that the reference speaks for by size, see holders_of.
int nearest_group(const std::vector<std::vector<int>>& groups, const std::vector<const Record*>& records, const Record& reference,
                  int64_t step) {
  constexpr double kClearly = 8, kUseless = 0.1;
  std::vector<std::optional<double>> gaps;
  for (const std::vector<int>& group : groups) gaps.push_back(gap_to(reference, *records[static_cast<std::size_t>(group.front())]));
  const bool all_known = std::ranges::all_of(gaps, [](const auto& gap) { return gap.has_value(); });
  if (all_known) {
    const auto nearest = std::ranges::min_element(gaps) - gaps.begin();
    for (std::size_t k = 0; k < gaps.size(); ++k) {
      if (static_cast<std::ptrdiff_t>(k) != nearest && !(*gaps[k] > kClearly * *gaps[static_cast<std::size_t>(nearest)])) return -1;
    }
    return static_cast<int>(nearest);
  }
  const std::size_t most = groups.size() - 1;
  const bool majority = 2 * groups[most].size() > records.size();
  const auto of_rank_0 = std::ranges::find_if(groups, [](const auto& group) { return group.front() == 0; }) - groups.begin();
  if (!majority || of_rank_0 == std::ssize(groups) || !gaps[static_cast<std::size_t>(of_rank_0)]) return -1;
  const bool near = *gaps[static_cast<std::size_t>(of_rank_0)] <= std::min(kUseless, rounding_bound(std::max<int64_t>(step, 0)));
  const bool in_most = static_cast<std::size_t>(of_rank_0) == most;
  return near == in_most ? static_cast<int>(most) : -1;
}

}  // namespace

std::vector<int> Holders::odd() const {
  std::vector<int> ranks;
  for (std::size_t k = 0; k < groups.size(); ++k) {
    const bool is_model = right < 0 ? k + 1 == groups.size() : static_cast<int>(k) == right;
    if (!is_model) ranks.insert(ranks.end(), groups[k].begin(), groups[k].end());
  }
  std::ranges::sort(ranks);
  return ranks;
}

Holders holders_of(const StepOfRun& step, const Record& subject, const StepOfRun* reference) {
  Holders holders;
  std::vector<const Record*> records;
  for (const StepRecords& rank : step.ranks) records.push_back(find_record(rank, subject.phase, subject.name));
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    if (!records[rank]) continue;
    const auto group = std::ranges::find_if(holders.groups, [&](const std::vector<int>& ranks) {
      return alike(*records[static_cast<std::size_t>(ranks.front())], *records[rank]);
    });
    if (group == holders.groups.end()) holders.groups.push_back({static_cast<int>(rank)});
    else group->push_back(static_cast<int>(rank));
  }
  std::ranges::stable_sort(holders.groups, [](const auto& x, const auto& y) {
    return x.size() != y.size() ? x.size() < y.size() : x.front() > y.front();
  });
  const Record* expected = reference ? find_record(reference->ranks[0], subject.phase, subject.name) : nullptr;
  if (!expected || !holders.parted()) return holders;
  for (std::size_t k = 0; k < holders.groups.size() && holders.right < 0; ++k) {
    if (!alike(*records[static_cast<std::size_t>(holders.groups[k].front())], *expected)) continue;
    holders.right = static_cast<int>(k);
    holders.same_bits = true;
  }
  if (holders.right < 0) holders.right = nearest_group(holders.groups, records, *expected, step.step);
  return holders;
}

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  const bool in_a_row = ranks.size() > 2 && ranks.back() - ranks.front() + 1 == std::ssize(ranks);
  if (in_a_row) return fmt::format("ranks {} to {}", ranks.front(), ranks.back());
  std::vector<std::string> numbers;
  for (const int rank : ranks) numbers.push_back(std::to_string(rank));
  return "ranks " + join_words(numbers);
}

}  // namespace lockstep
