#include "harness/verdict/compare/forced/flipped_bit.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace lockstep {

std::optional<std::size_t> single_difference(const std::vector<double>& expected,
                                             const std::vector<double>& actual, double band) {
  if (expected.size() != actual.size() || expected.empty()) return std::nullopt;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (distance(expected[i], actual[i]) > distance(expected[worst], actual[worst])) worst = i;
  }
  if (!(distance(expected[worst], actual[worst]) > band)) return std::nullopt;
  double rest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (i != worst) rest = std::hypot(rest, distance(expected[i], actual[i]));
  }
  return rest <= band ? std::optional(worst) : std::nullopt;
}

double with_bit_turned(double value, int bit, bool wide) {
  if (wide) return std::bit_cast<double>(std::bit_cast<uint64_t>(value) ^ (uint64_t{1} << bit));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(value)) ^ (uint32_t{1} << bit));
}

namespace {

/// The ranks' values of one element; empty if a rank lacks the tensor.
std::vector<double> values_at(const WrongElement& it, const std::vector<std::vector<NamedTensor>>& local) {
  std::vector<double> values;
  for (const std::vector<NamedTensor>& rank : local) {
    const NamedTensor* tensor = find_tensor(rank, it.tensor);
    if (!tensor || it.element >= tensor->values.size()) return {};
    values.push_back(tensor->values[it.element]);
  }
  return values;
}

}  // namespace

std::vector<FlippedBit> flips_in_values(const WrongElement& it,
                                        const std::vector<std::vector<NamedTensor>>& local) {
  std::vector<FlippedBit> found;
  const std::vector<double> values = values_at(it, local);
  const auto ranks = static_cast<double>(values.size());
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    // A flip may have made the number huge: what it was is told by the others, not by taking the difference.
    double right = it.right * ranks;
    for (std::size_t other = 0; other < values.size(); ++other) right -= other == rank ? 0 : values[other];
    for (int bit = 0; bit < (it.wide ? 64 : 32); ++bit) {
      const double value = with_bit_turned(values[rank], bit, it.wide);
      if (std::abs(value - right) <= ranks * it.uncertain) {
        found.push_back({static_cast<int>(rank), it.tensor, it.element, bit});
      }
    }
  }
  return found;
}

std::vector<FlippedBit> flips_in_messages(const WrongElement& it,
                                          const std::vector<std::vector<NamedTensor>>& local) {
  std::vector<FlippedBit> found;
  const std::vector<double> values = values_at(it, local);
  const auto ranks = static_cast<double>(values.size());
  const double change = it.wrong - it.right;
  const double tolerance = it.uncertain + (ranks + 4) * it.epsilon * std::abs(change);
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    for (int bit = 0; bit < (it.wide ? 64 : 32); ++bit) {
      const double plain = (with_bit_turned(values[rank], bit, it.wide) - values[rank]) / ranks;
      const double divided = with_bit_turned(values[rank] / ranks, bit, it.wide) - values[rank] / ranks;
      const bool explains = std::isfinite(change) ? std::abs(plain - change) <= tolerance ||
                                                        std::abs(divided - change) <= tolerance
                                                  : !std::isfinite(plain) || !std::isfinite(divided);
      if (explains) found.push_back({static_cast<int>(rank), it.tensor, it.element, bit});
    }
  }
  return found;
}

}  // namespace lockstep
