#pragma once
// What a matrix file and the command line say, read but not yet expanded into cells.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/verdict/config/settings.h"
#include "harness/verdict/plan/matrix.h"

namespace lockstep {

struct ExpectRule {
  Rule when;
  std::vector<VerdictKind> verdicts;
};

/// A cell beside the product of the axes.
struct Included {
  std::vector<Setting> settings;
  std::vector<Setting> reference;  ///< what its reference has besides the matrix's
  std::vector<int64_t> seeds;      ///< empty: the matrix's
  Place place;
};

struct MatrixSource {
  Matrix matrix;                ///< all but its cells
  RunConfig base;               ///< of cells and references, without planted faults
  std::vector<Setting> faults;  ///< top-level mutant.*: of cells alone
  std::vector<Choice> axes;
  std::vector<Included> include;
  std::vector<Setting> reference;  ///< keys of the reference's block
  bool same_as_cell = false;
  bool reference_given = false;  ///< in the file or by --set
  std::vector<Rule> exclude;
  std::vector<Rule> power_controls;
  std::vector<Rule> noise_of;  ///< cells that get A/A pairs of their own
  std::vector<ExpectRule> expect;
  std::set<std::string, std::less<>> set_keys;       ///< given by --set
  std::map<std::string, Place, std::less<>> places;  ///< where each key was last given a value
  bool sound = true;  ///< everything that decides the cells was read without a problem

  /// Where `key` was given; the file's first line if nowhere.
  Place place_of(std::string_view key) const;
};

/// Cells of the product of axes without the excluded ones, then the included ones; names, references,
/// expectations. Reports rules that match nothing, duplicate cells, and cells that would be compared with
/// themselves.
std::vector<Cell> expand_cells(const MatrixSource& source, Problems& problems);

/// What check_matrix would say of that cell alone.
std::vector<std::string> cell_problems(const MatrixSource& source, const Cell& cell);

/// Reports combinations of values that cannot run or cannot be judged, each once with the cells that it
/// concerns.
void check_matrix(const MatrixSource& source, const std::vector<Cell>& cells, Problems& problems);

}  // namespace lockstep
