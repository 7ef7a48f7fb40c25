#pragma once
// Faults of the user's own, which switches of a command plant: `detection.faults`.

#include <string>
#include <vector>

#include "harness/verdict/config/field.h"
#include "harness/verdict/plan/matrix.h"

namespace lockstep {

/// What one of a command's switches plants, where that must show first, and how it must be named. Phase, tensor and causes are written as
/// those of a MutantEntry are.
struct OwnFault {
  Rule when;             ///< the cells that it is planted in
  std::string name;      ///< "env.MISTAKE=sum"
  std::string causes;    ///< codes that name it rightly, with blanks between them
  int64_t step = 0;      ///< at which it must show first
  std::string phase;     ///< in which it must show first; empty: that is not asked; "failed": the run ends by it
  std::string tensor;    ///< what the named place must begin with; empty: that is not asked
  int rank = -1;         ///< of a run that ends by it, the rank that must be named; -1: that is not asked
  Place cause_place, phase_place;
  bool fails() const { return phase == "failed"; }
};

/// `trainer`: the command's, whose keys `when` may name.
std::vector<OwnFault> read_own_faults(const Entry& entry, const TrainerSpec& trainer, Problems& problems);
SchemaJson own_faults_schema();

/// Those that the run plants, the one that must show first at the front.
std::vector<const OwnFault*> planted_in(const std::vector<OwnFault>& faults, const RunConfig& config);

/// Cells of a command's detection matrix: those of its axes, each of one seed, with what is expected of them. Reports faults that no cell
/// plants, that the reference has too, that the run does not reach, or that meet at one step.
std::vector<Cell> own_fault_cells(const MatrixSource& source, const std::vector<OwnFault>& faults, Problems& problems);

}  // namespace lockstep
