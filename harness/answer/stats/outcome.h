#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/answer/stats/estimates.h"
#include "harness/answer/stats/spending.h"
#include "harness/judge/evidence/arms.h"
#include "harness/judge/evidence/run_evidence.h"

// Does a cell learn the same as its reference? Paired over seeds, on metrics alone: blind to what was
// configured.

namespace lockstep {

/// The arms cannot be compared: seeds without a partner, a metric that is missing or not finite; says which.
class OutcomeError : public std::runtime_error {
 public:
  /// `kind`: lost, unmeasured or nonfinite.
  OutcomeError(FailureKind kind, const std::string& what)
      : std::runtime_error(what), kind_(kind) {}
  FailureKind kind() const { return kind_; }

 private:
  FailureKind kind_;
};

struct OutcomeInputs {
  std::string cell, reference;  ///< names, for the sentence
  const MetricsBySeed& cell_metrics;
  const MetricsBySeed& reference_metrics;
  Primary primary;
  double samples_ratio = 1;  ///< samples that the cell's runs saw over those of the reference's
};

/// Verdict, intervals, estimates, power and sentence of one cell. Throws OutcomeError. A metric other than
/// the primary that is not finite is noted and not compared.
Outcome judge_outcome(const OutcomeInputs& inputs);

/// "24-way accuracy 0.094 lower (95 % interval 0.074 to 0.114, 10 paired seeds), although its training loss reads
/// better": the difference's size with its (1 - alpha) interval and n, and the other metrics whose intervals speak against it. Of an outcome with n >= 2.
std::string difference_in_words(const Outcome& outcome, const std::string& metric_in_words);

/// Samples that a run of `cell` sees over those of a run of `reference`.
double samples_ratio(const RunConfig& cell, const RunConfig& reference);

/// "10 paired seeds"; "10 paired seeds, 8 times the samples" where the cell's runs saw so many times the reference's.
std::string pairs_in_words(const Outcome& outcome);

/// " in the median" where the sign test decided; nothing where the mean did.
std::string middle_in_words(const Outcome& outcome);

/// ", of which 2 lie beyond it": pairs at or beyond the margin, which say nothing against a median inside it.
/// Empty where there are none, and of t.
std::string beyond_in_words(const Outcome& outcome);

/// Of an undecided outcome with n >= 2: "28 seeds would decide this if the true difference is 0, 61 if it is
/// half the margin", or, where that many have run, that the difference may lie near the margin. Seeds are never
/// counted at the difference that was measured; what its interval leaves out is not supposed.
std::string seeds_in_words(const Outcome& outcome);

/// Are neither `size` nor minus it in the interval?
bool leaves_out(const Interval& interval, double size);

/// Of a difference that is claimed of a cell picked from a matrix: empty, or "; among the matrix's cells it
/// may be chance (Holm's p 0.08)" if p_holm exceeds alpha.
std::string family_in_words(const Outcome& outcome);

/// Fills p_holm of every outcome: over the cells that are neither power controls nor A/A pairs nor their own
/// reference and have two seeds or more; of the others it is p_different. The sentence of a divergent cell
/// says so if p_holm exceeds alpha.
void adjust_for_family(std::vector<CellResult>& cells);

/// "0.094": as many decimals as the margin needs for two digits of it. Signed: "+0.094", "-0.094".
std::string format_difference(double value, double margin);
std::string format_signed_difference(double value, double margin);
/// The same, rounded up: of what a true value has to reach.
std::string format_at_least(double value, double margin);

/// "90 % interval -0.004 to +0.005".
std::string interval_in_words(const Interval& interval, double margin);
/// "-0.347, 95 % interval -0.360 to -0.334, 10 paired seeds": the primary difference.
std::string figures_in_words(const Outcome& outcome);

// Do two cells learn the same? For any two cells, of one matrix or of two.

struct OutcomeComparison {
  std::string reference, cell;  ///< titles
  VerdictKind verdict = VerdictKind::failed;
  std::string sentence;
  std::optional<Outcome> outcome;  ///< nothing if it failed
  std::optional<Failure> failure;
  std::vector<QuestionDifference> differences;
};

/// Paired by seed, by `primary`. A run that failed or a metric that is not finite makes it `failed`.
OutcomeComparison compare_arms(const ArmPair& pair, const Primary& primary);

// `seeds: auto`: what the looks at a growing number of pairs decide.

/// Looks at the differences, in the order in which pairs were added, until one of the looks decides or no
/// pairs are left. Each look decides at its nominal level.
std::vector<Look> take_interim_analyses(std::span<const double> differences, const std::vector<SpendingAnalysis>& looks,
                             const Primary& primary);

/// judge_outcome of the pairs of the look that decides, or of all: intervals, power and the seeds that would
/// decide are at that look's nominal level, which the sentence says. Throws OutcomeError.
Outcome judge_sequentially(const OutcomeInputs& inputs, const SeedsAuto& seeds);

/// `primary` with the nominal level of the outcome's last look in place of alpha; unchanged where there were
/// no looks.
Primary at_last_analysis(Primary primary, const Outcome& outcome);

/// Is the cell undecided, so that more seeds would be looked at?
bool wants_more_seeds(const CellResult& cell, const SeedsAuto& seeds);

/// "10 paired seeds"; "5 to 40 paired seeds" where cells had different numbers.
std::string pairs_in_words(int fewest, int most);

// How far rounding alone moves an outcome: A/A pairs show that seeds are not the only noise, and that another
// machine may come to another result.

/// Fills `rounding` of every outcome of two seeds or more whose cell or reference has A/A pairs that differ in
/// rounding alone (row_order, epsilon): not where random draws differ. Where rounding may change the verdict, or
/// moves the difference by half a margin or more, the outcome's sentence says so.
///
/// Of each kind of pairs the widest counts. A pair of the cell itself has twice the variance of one of its runs,
/// one of its reference twice that of the reference's; a difference has both once, so it has the mean of the
/// two, or where one of them alone was measured as much as that one. Between two machines it is drawn twice: its
/// mean over n seeds moves by t * sd * sqrt(2 / n), t Student's quantile of the A/A pairs' seeds at 1 - alpha /
/// 2.
void note_rounding(std::vector<CellResult>& cells);

/// Would the outcome's verdict be another if its difference came out otherwise by up to `rounding->shift`?
bool may_turn(const Outcome& outcome);

/// Is there something to be said of rounding?
bool is_unsteady(const Outcome& outcome);

/// "rounding alone moves it: A/A pairs differ with a standard deviation of 0.028 (10 seeds), so that ...". Of an
/// outcome that is_unsteady.
std::string rounding_in_words(const Outcome& outcome);

// Noise scales and rules of the learning rate in words, the same in the summary and in every report.

/// "From 1x3 to 8x3 (3 to 24 rows) sqrt has the best mean 24-way accuracy over 10 paired seeds; ... predicted 0.42 (range 0.28
/// to 0.56) at a noise scale of 35 rows, measured 0.40 (95 % interval 0.20 to 0.70)." `unmeasured` says why no exponent was
/// measured.
std::string growth_sentence(const Growth& growth, const std::string& unmeasured);

/// "at equally many samples"; "at 8 times the samples".
std::string samples_in_words(double ratio);

/// "35 rows (95 % interval 28 to 44), over 400 steps", of the estimate alone; the caveat stands beside it.
std::string noise_scale_words(const NoiseScale& scale);

}  // namespace lockstep
