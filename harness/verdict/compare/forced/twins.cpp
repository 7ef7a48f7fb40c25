#include "harness/verdict/compare/forced/twins.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep {
namespace {

/// Half the digits that float64 has beyond what a sum of some thousand terms rounds away.
constexpr double kMeaning = 1e-12;
constexpr double kMeaningWhole = 1e-14;
constexpr double kMeaningOwn = 64;
constexpr double kEpsilon64 = std::numeric_limits<double>::epsilon();

/// Of a sum's size: who errs by so much has no digit left.
constexpr double kNoDigit = 1.0 / 8;
constexpr double kEpsilon32 = std::numeric_limits<float>::epsilon();

constexpr double kRatio = 16;
constexpr double kTerms = 8;
constexpr double kWhole = 4;
constexpr double kSingle = 4;

double difference(const std::optional<double>& a, const std::optional<double>& b) {
  const double found = a && b ? distance(*a, *b) : 0;
  return std::isfinite(found) ? found : 0;
}

/// |narrow - wide|; 0 where there is none of that name, or no number.
double own_error(const NamedTensor& wide, const NamedTensor* narrow) {
  const double found = narrow && narrow->values.size() == wide.values.size() ? distance(narrow->values, wide.values) : 0;
  return std::isfinite(found) ? found : 0;
}

}  // namespace

void add_errors(LargestErrors& errors, const ForcedValues& reference, const ForcedValues& twin) {
  for (const NamedTensor& wide : twin.gradients) {
    const double size = term_size(wide, twin);
    if (!(size > 0)) continue;
    double& largest = errors[wide.name];
    largest = std::max(largest, own_error(wide, find_tensor(reference.gradients, wide.name)) / size);
  }
}

TwinBounds::TwinBounds(TwinQuestion question, const ForcedValues& reference, const ForcedValues& twin, const LargestErrors& errors)
    : question_(question), epsilon_(reference.working_epsilon) {
  for (const NamedTensor& wide : twin.gradients) {
    const double size = term_size(wide, twin);
    const auto largest = errors.find(wide.name);
    const double at_worst = largest == errors.end() ? 0 : largest->second * size;
    const double own = std::max(own_error(wide, find_tensor(reference.gradients, wide.name)), at_worst);
    gradients_[wide.name] = {own, size, wide.values.size() == 1};
    whole_ = std::hypot(whole_, size);
  }
  for (const NamedTensor& wide : twin.parameters) {
    if (!wide.name.starts_with("buffer/")) continue;
    buffers_[wide.name] = {own_error(wide, find_tensor(reference.parameters, wide.name)), norm(wide.values),
                           wide.values.size() == 1};
  }
  if (reference.scores && twin.scores) scores_ = score_difference(*twin.scores, *reference.scores).largest;
  if (!std::isfinite(scores_)) scores_ = 0;
  loss_ = difference(reference.loss, twin.loss);
  gradient_norm_ = difference(reference.gradient_norm, twin.gradient_norm);
}

double TwinBounds::bound(const Value& value, double whole) const {
  if (question_ == TwinQuestion::meaning) {
    const double epsilon = value.own >= kNoDigit * value.size ? std::min(epsilon_, kEpsilon32) : epsilon_;
    return kMeaning * value.size + kMeaningWhole * whole + kMeaningOwn * kEpsilon64 / epsilon * value.own;
  }
  return kRatio * value.own + (value.single ? kSingle : 1) * epsilon_ * (kTerms * value.size + kWhole * whole);
}

double TwinBounds::of_gradient(const std::string& name) const {
  const auto found = gradients_.find(name);
  return found == gradients_.end() ? 0 : bound(found->second, whole_);
}

double TwinBounds::of_gradient_norm(double size) const {
  double whole = 0;
  for (const auto& [name, value] : gradients_) whole = std::hypot(whole, bound(value, whole_));
  return std::max(whole, bound({gradient_norm_, size, true}, 0));
}

double TwinBounds::of_buffer(const std::string& name, double size) const {
  const auto found = buffers_.find(name);
  Value value = found == buffers_.end() ? Value{} : found->second;
  value.size = size;
  return bound(value, 0);
}

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
