#pragma once
// What people were told, as conditions on the results of a matrix's cells.

#include <string>
#include <vector>

#include "harness/verdict/config/problems.h"

namespace lockstep {

struct YamlNode;
struct Cell;

/// One condition. Each kind is a map whose first key names it:
///
///   {outcome: CELL, is: worse, metric: accuracy_24, against: CELL, margin: 0.03}
///       The paired difference to the reference, or to another cell, by the matrix's test: better, worse,
///       higher, lower, equivalent or different.
///   {value: METRIC, of: CELL, within: [0, 0.1]}
///       The mean over seeds, with its interval.
///   {ratio: METRIC, of: CELL, to: CELL, within: [1.15, 1.25]}
///       Paired by seed, geometric mean with its interval; to: the reference if it is not given.
///   {gradient: CELL, group: action_encoder, of: ratio, within: [0, 0]}
///       Of the forced comparison with the reference, at every forced step: ratio, cosine or residual.
///   {mechanism: CELL, is: [identical, within_envelope]}
///   {rule: adaptive_as_written, at: 4x6, gives: layer}
///       What a rule makes of a layout: no run is needed.
///   {certified: CELL, steps: 20}
///       Real ranks gave the bits of the emulated ones for at least so many steps.
///   {samples: CELL, are: [as_reference, each_once, equal_counts, reshuffled]}
///       What the ranks' ledgers of samples say: at each step those of the reference, whoever has them;
///       within an epoch none twice; equally many on every rank; another order in the second epoch.
///   {draws: CELL, are: [apart, apart_over_seeds]}
///       No two ranks drew the same numbers at a step; nor any two ranks of runs with different seeds.
///   {first: CELL, step: 5, rank: 2, where: TENSOR, cause: CODE}
///       The first divergence from the reference, and its cause, are those; what is not given may be
///       anything.
///   {suite: NAME, failure: kill, place: "...", outcome: "...", is: clean}
///       What stands in OUT/../NAME/results.json of the cases of that failure, at that place, or all: clean (none came out
///       wrong or undecided), faulty, or found (each is a planted mistake that showed); with `outcome`: all of them, or one
///       of them, came out so.
///   {timing: speed_up, at: 8x3, within: [6, 8]}
///       Of the timed layouts: speed_up, efficiency or communication_share; not testable where ranks share
///       cores.
///
/// A metric is one of the run's, `train_CURVE` (a curve's mean over the last steps), `first_CURVE` (its first
/// value), `seconds` (of training), `activation_bytes`, `resident_growth` (last over first), or the
/// difference `A - B` of two of them.
struct Condition {
  enum class Kind {
    outcome,
    value,
    ratio,
    gradient,
    mechanism,
    rule,
    certified,
    samples,
    draws,
    first,
    suite,
    written,
    timing
  } kind = Kind::outcome;
  std::string cell;     ///< of rules: the layout
  std::string against;  ///< the other cell; empty: the cell's reference
  std::string metric;   ///< of outcomes, empty: the primary one; of gradients ratio, cosine or residual; of
                        ///< rules the rule
  std::string group;    ///< of gradients
  std::vector<std::string> is;  ///< the words that make it true
  double low = 0, high = 0;     ///< of `within`
  double margin = 0;            ///< of outcomes; 0: the primary one
  Place place;
  int64_t step = -1;                   ///< of first: -1: any; of certified: the number of steps
  int rank = -2;                       ///< of first; -2: any, -1: all ranks
  std::string where = {}, cause = {};  ///< of first; empty: any
  std::string failure = {}, place_words = {}, outcome = {};  ///< of a suite, whose name is `cell`; empty: any
};

struct Claim {
  std::string id, told;
  std::vector<Condition> conditions;  ///< all must be true
  std::vector<std::string> shows;     ///< further cells that belong to it
  std::string not_testable;           ///< why it cannot be tested here; empty: it can
  std::string expected;  ///< "holds", "does not hold", "undecided", "not testable here"; empty: any
  Place place;
  std::string waiting_for = {};  ///< the part of the program that it waits for; empty: none
};

/// The section `claims` of a matrix.
using Claims = std::vector<Claim>;

/// Reads the section `claims`. Reports what is wrong by place.
std::vector<Claim> read_claims(const YamlNode& node, Problems& problems);

/// Reports claims that name cells which the matrix lacks, with the nearest name. References may be named
/// too.
void check_claims(const std::vector<Claim>& claims, const std::vector<Cell>& cells, Problems& problems);

/// Every cell or reference that a claim names.
std::vector<std::string> cells_of(const Claim& claim);

}  // namespace lockstep
