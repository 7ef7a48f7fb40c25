#pragma once
// What trials measure beside their cases: counts, greatest values, samples, and entries by key. Those of a trial are recorded with it, so that
// a suite that was interrupted goes on with them; reports show their sum over all trials.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

class Measurements {
 public:
  void add(const std::string& name, int64_t count = 1) { counts_[name] += count; }
  void at_least(const std::string& name, double value);
  void sample(const std::string& name, double value) { samples_[name].push_back(value); }
  /// The last entry of a key counts.
  void keep(const std::string& name, const std::string& key, nlohmann::json value = true) { entries_[name][key] = std::move(value); }

  int64_t count(const std::string& name) const;
  /// 0 where nothing was measured.
  double greatest(const std::string& name) const;
  const std::map<std::string, std::vector<double>>& samples() const { return samples_; }
  /// By key.
  const std::map<std::string, nlohmann::json>& entries(const std::string& name) const;

  void merge(const Measurements& other);
  nlohmann::json to_json() const;
  /// Throws nlohmann::json::exception.
  static Measurements from_json(const nlohmann::json& json);

 private:
  std::map<std::string, int64_t> counts_;
  std::map<std::string, double> greatest_;
  std::map<std::string, std::vector<double>> samples_;
  std::map<std::string, std::map<std::string, nlohmann::json>> entries_;
};

/// Of the trial that this thread runs.
Measurements& measured();

/// The trial of this thread writes into `measurements` as long as this lives.
class MeasuredTrial {
 public:
  explicit MeasuredTrial(Measurements& measurements);
  ~MeasuredTrial();
  MeasuredTrial(const MeasuredTrial&) = delete;
  MeasuredTrial& operator=(const MeasuredTrial&) = delete;

 private:
  Measurements* before_;
};

}  // namespace lockstep
