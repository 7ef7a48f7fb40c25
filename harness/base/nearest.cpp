#include "harness/base/nearest.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours count one each.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> names) {
  constexpr std::size_t kLongestWord = 64;  // Nobody mistypes a key into something longer.
  if (word.empty() || word.size() > kLongestWord) return {};
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3);
  bool found = false;
  for (const std::string_view name : names) {
    const std::size_t distance = edit_distance(word, name);
    // Words that differ in every letter are not alike.
    if (distance >= std::max(word.size(), name.size())) continue;
    if (distance < best_distance || (distance == best_distance && !found)) {
      best = name;
      best_distance = distance;
      found = true;
    }
  }
  return best;
}

}  // namespace lockstep
