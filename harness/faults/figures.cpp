#include "harness/faults/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/base/median.h"

namespace lockstep::faults {
namespace {

/// The smallest value that so many of a hundred do not exceed.
double percentile(const std::vector<double>& sorted, double of_hundred) {
  const auto place = static_cast<std::size_t>(std::ceil(of_hundred / 100 * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(place, 1, sorted.size()) - 1];
}

std::string summary(const std::vector<Noticed>& all) {
  std::set<std::string> by;
  std::vector<double> after;
  int64_t lost = 0;
  for (const Noticed& one : all) {
    by.insert(one.by);
    if (one.after_s >= 0) after.push_back(one.after_s);
    lost = std::max(lost, one.steps_lost);
  }
  std::string text = fmt::format("{}, {} of {}", fmt::join(by, " or "), all.size(), all.size());
  if (!after.empty())
    text += fmt::format(", after {:.0f} ms (at most {:.0f})", 1000 * median(after), 1000 * *std::ranges::max_element(after));
  text += lost == 0 ? ", no finished step was lost" : fmt::format(", {} finished steps were lost", lost);
  return text + ": " + all.front().words;
}

}  // namespace

void Figures::noticed(Noticed one) {
  const std::lock_guard lock(mutex_);
  kinds_[one.kind].push_back(std::move(one));
}

void Figures::add(const std::string& name, double seconds) {
  const std::lock_guard lock(mutex_);
  seconds_[name].push_back(seconds);
}

void Figures::count(const std::string& name, bool good) {
  const std::lock_guard lock(mutex_);
  auto& [good_ones, all] = counts_[name];
  good_ones += good ? 1 : 0;
  ++all;
}

std::vector<std::pair<std::string, std::string>> Figures::facts() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, std::string>> facts;
  for (const auto& [name, values] : seconds_) {
    std::vector<double> sorted = values;
    std::ranges::sort(sorted);
    facts.emplace_back(name, fmt::format("median {:.1f} ms, 99 of 100 within {:.1f} ms, at most {:.1f} ms; n = {}",
                                         1000 * median_of_sorted(sorted), 1000 * percentile(sorted, 99), 1000 * sorted.back(),
                                         sorted.size()));
  }
  for (const auto& [name, count] : counts_) facts.emplace_back(name, fmt::format("{} of {}", count.first, count.second));
  for (const auto& [kind, all] : kinds_) {
    std::vector<Noticed> ordered = all;  // trials end in any order
    std::ranges::sort(ordered, {}, &Noticed::words);
    facts.emplace_back(kind, summary(ordered));
  }
  return facts;
}

}  // namespace lockstep::faults
