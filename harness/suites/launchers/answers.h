#pragma once
// What processes took themselves for, by question and launcher: the tables of the report.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/suites/engine/suite.h"

namespace lockstep::launchers {

/// A question put to every process of a placement, in the words of one launcher or of several.
struct Asked {
  std::string question, launcher;
};

/// What came of one placement.
struct Answer {
  int64_t processes = 0, wrong = 0;
  std::string first_wrong = {};  ///< a sentence; empty: none was
};

/// What one rank took itself for.
struct Said {
  std::string words;  ///< "9/16, 1, GPU 1": rank and world, local rank, GPU
  bool wrong = false;
};

/// What trials ask, and the tables of their answers.
class Answers {
 public:
  /// The order in which they stand in the table.
  void expect(const Asked& asked) { asked_.push_back(asked); }
  /// Into the measurements of the trial.
  static void answered(const Asked& asked, const Answer& answer);
  /// Of the placement that is shown rank by rank; `said` by rank.
  static void answered_by_rank(const std::string& launcher, const std::vector<Said>& said);
  /// Question by launcher, then rank by launcher; those that were asked.
  std::vector<SuiteTable> tables(const Measurements& m) const;

 private:
  std::vector<Asked> asked_;
};

}  // namespace lockstep::launchers
