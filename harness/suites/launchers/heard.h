#pragma once
// What processes took themselves for, by question and launcher: the tables of the report.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "harness/suites/engine/suite.h"

namespace lockstep::launchers {

/// A question put to every process of a placement, in the words of one launcher or of several.
struct Asked {
  std::string question, launcher;
};

/// What came of one placement.
struct Heard {
  int64_t processes = 0, wrong = 0;
  std::string first_wrong = {};  ///< a sentence; empty: none was
};

/// What one rank took itself for.
struct Said {
  std::string words;  ///< "9/16, 1, GPU 1": rank and world, local rank, GPU
  bool wrong = false;
};

/// Gathers answers of trials that end on any thread, in any order.
class Hearing {
 public:
  /// The order in which they stand in the table.
  void expect(const Asked& asked);
  void heard(const Asked& asked, const Heard& answer);
  /// Of the placement that is shown rank by rank; `said` by rank.
  void heard_each(const std::string& launcher, std::vector<Said> said);
  /// Question by launcher, then rank by launcher; those that were asked.
  std::vector<SuiteTable> tables() const;

 private:
  struct Line {
    Asked asked;
    int64_t placements = 0;
    Heard sum;
  };
  mutable std::mutex mutex_;
  std::vector<Line> lines_;
  std::map<std::string, std::vector<Said>> by_rank_;
};

}  // namespace lockstep::launchers
