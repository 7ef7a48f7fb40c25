#include "harness/suites/engine/measurements.h"

#include <algorithm>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

thread_local Measurements* t_measured = nullptr;

}  // namespace

void Measurements::at_least(const std::string& name, double value) {
  const auto [place, added] = greatest_.try_emplace(name, value);
  if (!added) place->second = std::max(place->second, value);
}

int64_t Measurements::count(const std::string& name) const {
  const auto found = counts_.find(name);
  return found == counts_.end() ? 0 : found->second;
}

double Measurements::greatest(const std::string& name) const {
  const auto found = greatest_.find(name);
  return found == greatest_.end() ? 0 : found->second;
}

const std::map<std::string, nlohmann::json>& Measurements::entries(const std::string& name) const {
  static const std::map<std::string, nlohmann::json> kNone;
  const auto found = entries_.find(name);
  return found == entries_.end() ? kNone : found->second;
}

void Measurements::merge(const Measurements& other) {
  for (const auto& [name, count] : other.counts_) add(name, count);
  for (const auto& [name, value] : other.greatest_) at_least(name, value);
  for (const auto& [name, values] : other.samples_) samples_[name].insert(samples_[name].end(), values.begin(), values.end());
  for (const auto& [name, entries] : other.entries_) {
    for (const auto& [key, value] : entries) entries_[name][key] = value;
  }
}

nlohmann::json Measurements::to_json() const {
  return {{"counts", counts_}, {"greatest", greatest_}, {"samples", samples_}, {"entries", entries_}};
}

Measurements Measurements::from_json(const nlohmann::json& json) {
  Measurements read;
  json.at("counts").get_to(read.counts_);
  json.at("greatest").get_to(read.greatest_);
  json.at("samples").get_to(read.samples_);
  json.at("entries").get_to(read.entries_);
  return read;
}

Measurements& measured() {
  LOCKSTEP_CHECK(t_measured != nullptr, "only a trial measures");
  return *t_measured;
}

MeasuredTrial::MeasuredTrial(Measurements& measurements) : before_(t_measured) { t_measured = &measurements; }
MeasuredTrial::~MeasuredTrial() { t_measured = before_; }

}  // namespace lockstep
