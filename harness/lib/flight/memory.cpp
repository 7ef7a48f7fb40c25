#include "harness/lib/flight/memory.h"

#include <fmt/format.h>

#include <cmath>
#include <span>

#include "harness/base/median.h"

namespace lockstep::flight {
namespace {

constexpr std::size_t kMostPoints = 512, kFewestPoints = 40;
constexpr double kSurely = 4, kLeastShare = 0.02, kLeast_bytes = 1 << 20;

double slope_of(std::span<const int64_t> steps, std::span<const double> bytes) {
  std::vector<double> slopes;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (std::size_t j = i + 1; j < steps.size(); ++j)
      slopes.push_back((bytes[j] - bytes[i]) / static_cast<double>(steps[j] - steps[i]));
  }
  return median(std::move(slopes));
}

/// Mann and Kendall's S over its deviation without ties: ties make it smaller, so that it errs towards silence.
double trend_z(std::span<const double> bytes) {
  double score = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (std::size_t j = i + 1; j < bytes.size(); ++j) score += bytes[j] > bytes[i] ? 1 : bytes[j] < bytes[i] ? -1 : 0;
  }
  const auto n = static_cast<double>(bytes.size());
  return score / std::sqrt(n * (n - 1) * (2 * n + 5) / 18);
}

}  // namespace

void MemorySeries::add(int64_t step, int64_t bytes) {
  if (seen_++ % stride_ != 0) return;
  steps_.push_back(step);
  bytes_.push_back(static_cast<double>(bytes));
  if (steps_.size() < kMostPoints) return;
  // Every second one stays.
  for (std::size_t i = 0; i < steps_.size() / 2; ++i) {
    steps_[i] = steps_[2 * i];
    bytes_[i] = bytes_[2 * i];
  }
  steps_.resize(steps_.size() / 2);
  bytes_.resize(steps_.size());
  stride_ *= 2;
}

std::optional<Leak> leak_in(const std::vector<int64_t>& steps, const std::vector<double>& bytes) {
  const std::size_t first = steps.size() / 5;
  const std::span<const int64_t> at = std::span(steps).subspan(first);
  const std::span<const double> resident = std::span(bytes).subspan(first);
  if (at.size() < kFewestPoints) return std::nullopt;
  const double slope = slope_of(at, resident);
  const Leak leak{slope, trend_z(resident), slope * static_cast<double>(at.back() - at.front())};
  const std::size_t half = at.size() / 2;
  const double early = slope_of(at.first(half), resident.first(half)), late = slope_of(at.subspan(half), resident.subspan(half));
  // What fills up and then stays grows in one half alone.
  const bool goes_on = early > slope / 4 && late > slope / 4;
  const bool enough = leak.grown_bytes > kLeast_bytes && leak.grown_bytes > kLeastShare * resident.front();
  if (leak.z <= kSurely || !goes_on || !enough) return std::nullopt;
  return leak;
}

std::string in_words(const Leak& leak) {
  return fmt::format("memory grows by {:.3g} MB a step ({:.3g} MB over the steps that were looked at)", leak.bytes_a_step / 1e6,
                     leak.grown_bytes / 1e6);
}

}  // namespace lockstep::flight
