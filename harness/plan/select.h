#pragma once
// The small language of --only.

#include <memory>
#include <string>

#include "harness/config/problems.h"
#include "harness/plan/matrix.h"

namespace lockstep {

/// A compiled expression; matrix.h says how it is written.
class Selection {
 public:
  /// Reports mistakes with their column in `text`, under `source`. An empty text selects everything.
  Selection(const std::string& text, const TrainerSpec& trainer, int source, Problems& problems);
  ~Selection();
  bool selects(const Cell& cell) const;

  struct Term;

 private:
  std::unique_ptr<Term> root_;
};

}  // namespace lockstep
