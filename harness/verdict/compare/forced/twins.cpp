#include "harness/verdict/compare/forced/twins.h"

#include <algorithm>
#include <cmath>
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

}  // namespace lockstep
