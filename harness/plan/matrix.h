#pragma once
// A YAML matrix, read: cells, references, controls, seeds and the question that is asked.

#include <map>
#include <string>
#include <vector>

#include "harness/plan/run_config.h"

namespace lockstep {

enum class Question { mechanism, outcome };
enum class VerdictKind { identical, within_envelope, equivalent, divergent, inconclusive, failed };

struct Primary {
  std::string metric = "accuracy_24";
  double margin = 0.03;   ///< in units of the metric, > 0
  double alpha = 0.05;    ///< in (0, 0.5)
};

/// How the forced comparison's floating-point band is measured.
struct BandConfig {
  int repeats = 4;        ///< permuted repeats of the reference, >= 4
  double factor = 8.0;    ///< times the largest difference over the repeats, >= 8
  double floor = 4.0;     ///< c of the floor c * epsilon * sum of |terms|
};

/// Which execution the ranks of cells get.
enum class RanksPolicy { automatic, emulated, real };  ///< automatic: emulated, certified by a real prefix

struct Cell {
  std::string name;                  ///< stable and readable: "8x3 local", "8x3 global lr_scale=0.125"
  RunConfig config;                  ///< with seed = the first seed
  RunConfig reference;               ///< the run that it should equal
  std::string reference_name;        ///< "1x24 global"
  std::vector<std::pair<std::string, std::string>> settings;  ///< axis -> value, in the axes' order
  bool power_control = false;
  std::vector<VerdictKind> expected; ///< empty: any verdict but `failed` will do
};

struct Matrix {
  std::string name;
  std::string file;
  std::string question_text;         ///< the config's first comment line
  Question question = Question::mechanism;
  Primary primary;
  BandConfig band;
  RanksPolicy ranks = RanksPolicy::automatic;
  int64_t certify_steps = 50;        ///< length of the real prefix of each cell, one seed a cell; 0: none
  std::vector<int64_t> forced_steps; ///< clipped to < steps; empty: no forced comparison
  std::vector<int64_t> seeds;
  std::vector<Cell> cells;
};

/// What the command line adds to a config.
struct Overrides {
  std::vector<std::string> set;      ///< key=value, dotted keys
  std::string only;                  ///< expression over settings and names; empty: all cells
  std::string seeds;                 ///< "A..B" or "a,b,c"; empty: as in the file
};

/// Reads and resolves. Throws ConfigError with every problem found. An `only` that selects no cell gives no cells.
Matrix read_matrix(const std::string& file, const Overrides& overrides);
Matrix parse_matrix(const std::string& text, const std::string& file_name, const Overrides& overrides);

/// JSON Schema (draft-07) of the configs that read_matrix accepts.
std::string config_schema();

const char* name_of(VerdictKind kind);
const char* name_of(Question question);

}  // namespace lockstep
