#pragma once
// What results are called, the same in every report.

#include <string>
#include <string_view>
#include <vector>

#include "harness/base/text.h"
#include "harness/verdict/results/results.h"

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

/// "24-way accuracy" of accuracy_24, "training loss / log N" of loss_over_log_n; unknown names as they are.
std::string metric_words(std::string_view metric);

/// A cell's or run's name to be shown: at most 120 columns; "(no name)" if it is empty.
std::string name_words(std::string_view name);

/// What untrained guessing gives: 1/K of accuracy_K, 1 of loss over log N; below 0 where there is none.
double chance_of(std::string_view metric);

/// False where neither way of a metric is better.
bool has_direction(const MetricDifference& difference);

/// Does this metric read better where the primary is worse, or worse where it is better? Only if both
/// intervals leave 0 out.
bool disagrees_in_sign(const MetricDifference& primary, const MetricDifference& other);

/// "equivalent or divergent"; "any verdict but failed" if none is declared.
std::string expected_words(const CellResult& cell);
/// Is the cell judged, not failed, and nothing stated of what is expected of it? How many are?
bool states_nothing(const CellResult& cell);
int unstated_cells(const Results& results);

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

/// "within envelope (19 % of the band)", "divergent", or that nothing was compared.
std::string mechanism_words(const CellResult& cell);

/// What there is to say of a cell in one line: why it failed or parted, and what was expected if something
/// else came.
std::string note_words(const CellResult& cell);
/// "…; cause: gather-without-gradient. Use a gather …"
/// Of its failure, or of where it first differs; null: none was looked for, or nothing explains it.
const Cause* cause_of(const CellResult& cell);
std::string with_cause(std::string text, const Cause& cause);

/// How the cells' emulated runs were certified; both empty if nothing was to be certified.
struct Certified {
  std::string how;   ///< "certified bit for bit on 8 real Gloo ranks"; empty: none was
  std::string what;  ///< "50 steps of each cell", "none of 2 cells certified on real ranks"
};
Certified certified_of(const Results& results);
/// The same in one sentence without a full stop.
std::string certification_words(const Results& results);

/// "outcome: accuracy_24, margin ± 0.03, 10 paired seeds"; "mechanism: are the same numbers computed?".
std::string question_words(const Results& results);

/// "declared before anything ran", "changed after the runs (margin was 0.03 when they were planned)", "declared at a
/// time that is not known": what the record of the runs says of the margin, and of what else defines the judgement.
std::string declaration_words(const Results& results);

/// "Margin ± 0.05 of 24-way accuracy, changed after the runs (…)."; empty where nothing was, or none is judged by.
std::string changed_words(const Results& results);

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

}  // namespace lockstep
