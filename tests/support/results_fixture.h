#pragma once
// Results built by hand, for reports: what a judge would fill in, without one.

#include <string>
#include <utility>
#include <vector>

#include "harness/answer/results/results.h"

namespace lockstep {

/// An outcome matrix: equivalent, divergent, one stream, inconclusive, failed, and a power control that was
/// caught.
Results outcome_results();

/// The same with the power control judged equivalent: the matrix cannot tell.
Results missed_control_results();

/// A mechanism matrix of real ranks: identical, within the band, far outside it, without forced steps.
Results mechanism_results();

/// Names, errors and log lines that try to become markup, text that is no text, figures that are no numbers.
Results hostile_results();

/// A detection matrix that falls short: one mutant missed, one named wrongly, a false alarm.
Results detection_results();

/// Losses certified at two numbers of ranks, one of them not, one that failed.
Results certificate_results();

/// Six layouts times three kinds of negatives, each against the same objective at 1x24; a batch that grows
/// from 3 to 24 rows under four rules; two power controls, three A/A pairs; timings and noise scales.
Results convergence_results();

/// Three cells whose seeds were added look by look: decided at once, decided late, ended by the budget.
Results sequential_results();

/// Faults, an undecided case, tables of which two hold a fault, a chart of lines and one of rows.
Results suite_results();

/// Nothing was selected.
Results empty_results();

/// `cells` cells with two curves of `points` points each and `forced` forced steps.
Results large_results(int cells, int points, int forced);

}  // namespace lockstep

// What they are put together from.
namespace lockstep::fixture {

/// From `start` towards `end`, half way at step `half`, in a band as wide as `width` at last.
CurveBand curve(const std::string& metric, double start, double end, double half, double width, int64_t last,
                int64_t stride);
/// Of ten pairs, by Student's t.
MetricDifference difference(const std::string& metric, double reference, double mean, double sd, bool higher);
Outcome outcome(VerdictKind verdict, double mean, double sd, double loss, double cross_entropy,
                const std::string& sentence);
/// A forced step whose gradients are `ratio` times the reference's, with that residual, using that share of the band.
ForcedStep forced(int64_t step, double ratio, double residual, double share);
/// A mechanism within the band, using that share of it.
Mechanism within(double used);
/// A cell of that name and verdict, as expected if `expected` holds the verdict.
CellResult cell(const std::string& name, VerdictKind verdict, std::vector<VerdictKind> expected,
                bool control = false);
using Pairs = std::vector<std::pair<std::string, std::string>>;
/// The fields that a parity matrix turns.
Pairs config(const std::string& layout, const std::string& negatives, const std::string& rule,
             const std::string& scale, const std::string& rank_seed);
/// Everything of a parity matrix but its cells.
Results frame();
/// The same with what its texts say as facts of their own too, as a judge gives both: layouts, real ranks and
/// the lack of negatives of the config's rows, a name without its reference, the sentences of the summary.
Results with_facts(Results results);
/// Counted from the cells, as a judge would; what only it knows is given.
Summary summarize(const Results& results, int runs, int exit_code, const std::string& sentence);

}  // namespace lockstep::fixture
