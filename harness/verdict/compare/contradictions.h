#pragma once
// What the traces of another trainer say against themselves. A verdict rests on hashes and values; a tracer whose other words contradict
// these is at fault, whatever the verdict.

#include <cstdint>
#include <string>

#include "harness/verdict/evidence/align.h"

namespace lockstep {

class Contradictions {
 public:
  /// Looks at a step of both runs, at whole tensors and at parts. In each run: statistics against the values beside them, rows of scores, losses and inputs
  /// against the step's samples. Between runs of one layout: statistics, values and rows under equal hashes, and hashes over equal values.
  void look(const StepOfRun& a, const StepOfRun& b, const std::string& name_a, const std::string& name_b);

  /// " The traces contradict themselves: …" with the first one found and how many more; empty if there is none.
  std::string sentence() const;

 private:
  void note(int64_t step, std::size_t rank, const Record& record, const std::string& what);

  std::string first_;
  int64_t found_ = 0;
};

}  // namespace lockstep
