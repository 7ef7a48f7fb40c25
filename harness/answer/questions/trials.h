#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/plan/config/field.h"
#include "harness/plan/matrix/matrix.h"

// Faults of the user's own, which switches of a command plant: `detection.faults`.

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

// The detection matrix: trials of planted faults and of none, each drawn from keys alone.

/// What a detection matrix plants and draws.
struct DetectionConfig {
  std::vector<std::string> mutants;           ///< planted one at a time; empty: all of the table
  std::vector<int64_t> seeds{0, 1, 2, 3, 4};  ///< trials of each mutant
  int64_t pairs = 30;                         ///< trials with two mutants at once
  int64_t clean = 1000;                       ///< trials with none
  int64_t steps = 20;                         ///< of every planted run; clean ones have 1 to so many
  int64_t draw_seed = 1;                      ///< of everything that is drawn
  /// Each mutant's trials again in exact arithmetic, 8x3 against one process, without a forced step.
  bool exact = false;
  std::vector<LeftOutMutant> left_out;  ///< that cannot act here; filled as trials are drawn
  std::vector<OwnFault> faults;         ///< of a command: what its switches plant; nothing is drawn then
};

/// Reads `all` or a list of mutants.
void read_mutants(const Entry& entry, DetectionConfig& detection, Problems& problems);

/// "left out, for they cannot act here: NAME (REASON); …", or empty.
std::string left_out_words(const std::vector<LeftOutMutant>& left_out);

/// Cells of a detection matrix: mutants x seeds ("flip_bit #3"), then pairs ("flip_bit + grad_scale #7"),
/// then, if asked for, mutants x seeds in exact arithmetic ("flip_bit exact #3"), then clean ones ("clean #512"). What a trial draws (layout, optimizer, rank, step, tensor, bit, factor) is
/// a hash of (draw_seed, its name, what is drawn), so that a trial is the same whatever else is in the
/// matrix. References are one process of the same global batch; trials of one seed draw from few settings, so
/// that they share references. A mutant that cannot show within detection.steps, or whose own settings the rest of the config refuses, is left
/// out; where none is left of those that are asked for, that is a problem.
std::vector<Cell> detection_cells(MatrixSource& source, Problems& problems);

}  // namespace lockstep
