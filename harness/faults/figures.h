#pragma once
// What trials measured, gathered over all slots.

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::faults {

/// One wrong program, as the report tells it.
struct Noticed {
  std::string kind, by;     ///< "hung", "check"
  double after_s = -1;      ///< from the act to the first word; -1: before the act was over, or not measured
  std::string words;
  int64_t steps_lost = 0;   ///< steps that had ended before the act, and are in no file of some rank
};

class Figures {
 public:
  void noticed(Noticed one);
  /// A duration of that name: "dead", "hung".
  void add(const std::string& name, double seconds);
  void count(const std::string& name, bool good);
  /// For the report: each kind, then each name with n, median, 99th percentile and maximum.
  std::vector<std::pair<std::string, std::string>> facts() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::vector<Noticed>> kinds_;
  std::map<std::string, std::vector<double>> seconds_;
  std::map<std::string, std::pair<int64_t, int64_t>> counts_;  ///< good ones, all
};

}  // namespace lockstep::faults
