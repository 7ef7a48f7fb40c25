#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/answer/results/suite_results.h"
#include "harness/base/text.h"

// What results are called, the same in every report.

namespace lockstep {

/// How a verdict is shown; `css` also names its colour on a terminal.
struct VerdictStyle {
  const char* symbol;  ///< one column wide
  const char* words;
  const char* css;  ///< ok, bad, und or fail
};
const VerdictStyle& style_of(VerdictKind kind);

/// The whole matrix in a word, and why.
struct Status {
  const char* symbol;
  const char* css;
  std::string word;
  std::string detail;
};
Status status_of(const Results& results);
std::string rank_words(int rank);

/// "24-way accuracy" of accuracy_24, "training loss / log N" of loss_over_log_n; unknown names as they are.
std::string metric_words(std::string_view metric);

/// A cell's or run's name to be shown: at most 120 columns; "(no name)" if it is empty.
std::string name_words(std::string_view name);

/// What untrained guessing gives: 1/K of accuracy_K, 1 of loss over log N; below 0 where there is none.
double chance_of(std::string_view metric);

/// Is the difference below a millionth of the value? Nothing is better by so little.
bool is_negligible(const MetricDifference& difference);

/// Does its interval exclude 0?
bool leaves_out_zero(const MetricDifference& d);

/// Does this metric read better where the primary is worse, or worse where it is better? Only if both
/// intervals leave 0 out.
bool disagrees_in_sign(const MetricDifference& primary, const MetricDifference& other);

/// "equivalent or divergent"; "any verdict but failed" if none is declared.
std::string expected_words(const CellResult& cell);
/// A power control must come out divergent.
bool is_missed_control(const CellResult& cell);

/// As the matrix expects it, and not a power control that was missed.
bool is_as_expected(const CellResult& cell);

/// "rank 3 died at step 41 in all_gather loss.candidates: killed by signal 9".
std::string failure_words(const Failure& failure);

/// "step 0, energies, rank 5".
std::string place_words(const Divergence& divergence);

/// The divergence's own sentence; else its place and where.
std::string divergence_words(const Divergence& divergence);

/// "different from step 3: mean-of-means": with its cause, or the phase that differs. It has a first divergence.
std::string difference_headline(const Mechanism& mechanism);

/// Of its failure, or of where it first differs; null: none was looked for, or nothing explains it.
const Cause* cause_of(const CellResult& cell);

/// What would decide an undecided cell: "80 % chance to decide: 34 seeds if there is no difference, 121 if it is half the margin".
std::string needed_words(const Outcome& outcome);
/// "configs differ in …": the keys in which they do although nobody asked about them; empty: none.
std::string undeclared_words(const CellResult& cell);

/// Names without the words that all of them share; those that would be left with none keep theirs.
std::vector<std::string> without_shared_words(const std::vector<std::string>& names);

/// How the cells' emulated runs were certified: "certified bit for bit on 8 real Gloo ranks: 50 steps of each cell"; empty: nothing was to be.
std::string certification_words(const Results& results);

/// "outcome: accuracy_24, margin ± 0.03, 10 paired seeds"; "mechanism: are the same numbers computed?".
std::string question_words(const Results& results);

/// "declared before anything ran", "changed after the runs (margin was 0.03 when they were planned)", "declared at a
/// time that is not known": what the record of the runs says of the margin, and of what else defines the judgement.
std::string declaration_words(const Results& results);

/// Where undecided cells name the seeds that would decide: that these are for one test, and what adds seeds to
/// those that have run; empty elsewhere.
std::string more_seeds_words(const Results& results);

/// Display name of a backend: "Gloo", "NCCL".
std::string backend_words(std::string_view backend);
/// Why a prefix is held to a band: "NCCL publishes no order of adding".
std::string band_reason_words(std::string_view backend);

/// 0: not known.
int world_size_of(const CellResult& cell);

/// Unique anchors of the cells, in their order: "cell-" and the slug of the name, numbered where two slugs
/// are equal.
std::vector<std::string> cell_anchors(const Results& results);

/// The cell's reference; null if the results hold none of that name.
const ReferenceResult* reference_of(const Results& results, const CellResult& cell);

// Numbers as people read them, the same in every format.

/// Decimals that show a tenth of `unit`'s leading digit: 3 for a margin of 0.03.
int decimals_for(double unit);

/// "+0.006", "−0.094"; zero is "+0.000" whatever its sign; "not a number", "+infinite".
std::string signed_number(double value, int decimals);

/// Four significant digits: "0.433", "1.2e-07".
std::string compact_number(double value);

/// "[−0.114, −0.074]".
std::string interval_words(const Interval& interval, int decimals);

/// How much of the tolerance was used: "0 % of tolerance" (0), "19 % of tolerance", "8.6e+04 ×
/// tolerance".
std::string band_words(double band_used, std::string_view of = "tolerance");

/// The same for a table: "0", "19 %", "8.6e+04 ×".
std::string band_share(double band_used);

/// "0.93", "> 0.999", "< 0.001"; of power and of p.
std::string probability_words(double p);

/// "0–9", "0, 2, 5".
std::string seeds_words(const std::vector<int64_t>& seeds);

/// Share of the band that one group used: difference / band; infinite if the band is 0 and the difference is
/// not.
double share_of_band(const GradientSignature& signature);

using Pairs = std::vector<std::pair<std::string, std::string>>;

/// Null: none of that key.
const std::string* value_of(const Pairs& pairs, std::string_view key);

/// At the end, if it is not there.
void add_value(std::vector<std::string>& values, const std::string& value);

// The answer as a table: two axes of the matrix against each other, a cell where they meet.

struct AnswerGrid {
  std::string row_axis, column_axis;  ///< keys of the config: "layout", "negatives"
  std::vector<std::string> rows, columns;
  std::vector<std::vector<const CellResult*>> cells;  ///< by row and column; null: the matrix has none there
  bool holds(const CellResult& cell) const;
};

/// The two axes that have the most cells between them, the others at one value each; the axis with more
/// values makes the rows. None where the matrix has no such product: fewer than 6 places, more than an eighth
/// of them empty, or another question. Power controls, A/A pairs and cells whose batch grew have no place in
/// it. Points into `results`.
std::optional<AnswerGrid> grid_of(const Results& results);

/// Is the global batch of the cell another than its reference's?
bool is_of_grown_batch(const Results& results, const CellResult& cell);

/// Rows of all ranks; 0: not known.
int global_batch_of(const std::optional<Layout>& layout);

/// Is the cell one of those that answer the question: neither its own reference nor an A/A pair?
bool is_judged(const CellResult& cell);

/// "24-way accuracy" values in the digits that the margin needs: "−0.094 ± 0.020".
std::string difference_and_half(const MetricDifference& difference, int decimals);

/// The level that the intervals of all judged cells have; none where cells have levels of their own.
std::optional<double> common_level(const Results& results);

/// "95 % interval"; "interval" where cells have levels of their own, as looks have.
std::string interval_name(const Results& results);

/// "10 paired seeds", "5 to 20 paired seeds": of the cells with an outcome; empty without any.
std::string pairs_words(const Results& results);

/// What tells a cell's interval apart where cells have pairs or levels of their own: "n 15, 98.8 %"; empty where
/// the heading says both.
std::string own_terms(const Results& results, const CellResult& cell);

/// "global negatives" of negatives and global, "lr_rule sqrt" of other keys.
std::string setting_words(const std::string& key, const std::string& value);

/// What the rows of the grid are compared with: the reference's name where there is one; "1x24" where all
/// references have that value of the row axis; else "its reference".
std::string held_against(const Results& results, const AnswerGrid& grid);

}  // namespace lockstep
