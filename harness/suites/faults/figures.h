#pragma once
// What trials measured, gathered over all slots.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/suites/engine/suite.h"

namespace lockstep::faults {

/// One wrong program, as the report tells it.
struct Noticed {
  std::string kind, by;     ///< "hung", "check"; by: empty where nobody noticed
  double after_s = -1;      ///< from the act to the first word; -1: only the finished run told, or not measured
  std::string words;
  int64_t steps_lost = 0;   ///< steps that had ended before the act, and are in no file of some rank
  std::string outcome = "named";                ///< as the trial's: "named", "missed"
  CaseVerdict verdict = CaseVerdict::good;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Noticed, kind, by, after_s, words, steps_lost, outcome, verdict)

/// Into the measurements of the trial: a wrong program, by the trial's name.
void note(const std::string& trial, const Noticed& one);
/// Of a correct program of that kind: was nothing said of it?
void note_control(const std::string& kind, bool silent);
/// One of those that are counted: did it come out well?
void note_count(const std::string& name, bool good);

/// What all trials measured. Durations are samples by name.
class Figures {
 public:
  explicit Figures(const Measurements& m);
  /// "199 of 200" of what was counted.
  std::vector<std::pair<std::string, std::string>> facts() const;
  /// Durations with n, median, 99th percentile and maximum; families of faults; each kind: by whom, when, in which words, what was lost, and
  /// what was said of its control run. Those of which there is something to say.
  std::vector<SuiteTable> tables() const;
  /// Time from the act to the first word by kind, against the threshold and a save's; and the durations.
  std::vector<SuiteChart> charts(double threshold_s, double disk_threshold_s) const;

 private:
  std::map<std::string, std::vector<Noticed>> kinds_;
  std::map<std::string, std::pair<int64_t, int64_t>> controls_;  ///< silent ones, all
  std::map<std::string, std::vector<double>> seconds_;
  std::map<std::string, std::pair<int64_t, int64_t>> counts_;  ///< good ones, all
};

}  // namespace lockstep::faults
