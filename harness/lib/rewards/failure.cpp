#include "harness/lib/rewards/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "harness/base/errors.h"

namespace lockstep::rewards {
namespace {

/// A quiet NaN's upper bits, then 7 bits of ours, the rank and the step.
constexpr uint64_t kPoison = 0x7ffd'0000'0000'0000u, kPoisonMask = 0xffff'0000'0000'0000u;

std::vector<std::string> candidates(const Finding& finding) {
  std::vector<std::string> codes{finding.code};
  codes.insert(codes.end(), finding.also.begin(), finding.also.end());
  return codes;
}

}  // namespace

std::string_view help_of(std::string_view code) {
  const auto found = std::ranges::find(causes(), code, &Cause::code);
  LOCKSTEP_CHECK(found != causes().end(), "a cause that is named stands in the table: " + std::string(code));
  return found->help;
}

void add(std::vector<Finding>& findings, Finding finding) {
  const std::vector<std::string> mine = candidates(finding);
  for (Finding& other : findings) {
    if (other.step != finding.step) continue;
    std::vector<std::string> both = candidates(other);
    std::erase_if(both, [&](const std::string& code) { return std::ranges::find(mine, code) == mine.end(); });
    if (both.empty()) continue;
    if (other.code != both.front()) other.sentence = finding.sentence;
    other.code = both.front();
    other.also.assign(both.begin() + 1, both.end());
    for (const int rank : finding.ranks) {
      if (std::ranges::find(other.ranks, rank) == other.ranks.end()) other.ranks.push_back(rank);
    }
    return;
  }
  findings.push_back(std::move(finding));
}

std::string ranks_in_words(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string number_in_words(double value) {
  Poisoned whose;
  if (is_poison(value, whose)) return fmt::format("nan (what rank {} had before rewards of step {} came)", whose.rank, whose.step);
  return fmt::format("{}", value);
}

double poison(int rank, int64_t step) {
  return std::bit_cast<double>(kPoison | (static_cast<uint64_t>(rank) & 0xffffu) << 32 |
                               (static_cast<uint64_t>(step) & 0xffff'ffffu));
}

bool is_poison(double value, Poisoned& whose) {
  const auto bits = std::bit_cast<uint64_t>(value);
  if ((bits & kPoisonMask) != kPoison) return false;
  whose = {static_cast<int>(bits >> 32 & 0xffffu), static_cast<int64_t>(bits & 0xffff'ffffu)};
  return true;
}

bool same_bits(std::span<const double> a, std::span<const double> b) {
  return std::ranges::equal(a, b, [](double x, double y) { return same_bits(x, y); });
}

}  // namespace lockstep::rewards
