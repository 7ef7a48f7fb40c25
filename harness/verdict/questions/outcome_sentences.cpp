// What an outcome's summary says.

#include "harness/verdict/questions/sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/verdict/results/drift_words.h"
#include "harness/verdict/results/interval_words.h"
#include "harness/verdict/results/metric_names.h"
#include "harness/verdict/results/rate_scaling.h"
#include "harness/verdict/stats/controls.h"
#include "harness/verdict/stats/outcome.h"
#include "harness/verdict/stats/rounding.h"
#include "harness/verdict/stats/sequential.h"
#include "harness/verdict/stats/skewness.h"

namespace lockstep {
namespace {

/// "; 8x24 saw 8 times its reference's samples": of the cells that saw more or fewer.
std::string more_samples_in_words(const CellList& cells) {
  std::string text;
  for (const CellResult* cell : cells) {
    if (cell->outcome->samples_ratio == 1) continue;
    text += fmt::format("; {} saw {:.3g} times the samples of its reference", cell->scenario, cell->outcome->samples_ratio);
  }
  return text;
}

/// Where nothing shows that their comparisons could see a difference, that is said instead of "the same".
std::string equivalent_in_words(const CellList& cells, bool controlled) {
  const Outcome& first = *cells.front()->outcome;
  const std::string metric = metric_label(first.metric);
  // Of several cells the ends that lie furthest out: the largest mean would promise more than is shown.
  Interval shown = first.equivalence;
  int fewest_pairs = first.n, most_pairs = first.n;
  double lowest = first.equivalence.level, highest = lowest;
  for (const CellResult* cell : cells) {
    const Outcome& outcome = *cell->outcome;
    shown.low = std::min(shown.low, outcome.equivalence.low);
    shown.high = std::max(shown.high, outcome.equivalence.high);
    lowest = std::min(lowest, outcome.equivalence.level);
    highest = std::max(highest, outcome.equivalence.level);
    fewest_pairs = std::min(fewest_pairs, outcome.n);
    most_pairs = std::max(most_pairs, outcome.n);
  }
  const std::string low = format_signed_difference(shown.low, first.margin),
                    high = format_signed_difference(shown.high, first.margin),
                    pairs = pairs_in_words(fewest_pairs, most_pairs);
  const bool alone = cells.size() == 1;
  const std::string verb = !controlled ? "came out equivalent to" : alone ? "trains the same as" : "train the same as";
  // Looks end at levels of their own.
  const std::string level = lowest == highest ? level_words(lowest)
                                              : fmt::format("{} to {}", level_words(lowest), level_words(highest));
  const std::string differs =
      alone ? fmt::format("differs by {} ({}){}", format_signed_difference(first.primary.mean, first.margin),
                          interval_in_words(first.equivalence, first.margin), middle_in_words(first))
            : fmt::format("differs by no more than {} to {}{} (each cell's {} interval)", low, high, middle_in_words(first),
                          level);
  return fmt::format("{} {} {}: {} {}, margin {}, {}{}{}{}.", names_of(cells), verb, references_of(cells), metric, differs,
                     first.margin, pairs, more_samples_in_words(cells), alone ? beyond_in_words(first) : "",
                     controlled ? "" : "; but " + uncontrolled_in_words(references_of(cells), cells.size()));
}

/// Is it shown that the cell is not the same, though within the margin?
bool is_shifted(const CellResult& cell) {
  const Outcome& outcome = *cell.outcome;
  return outcome.n >= 2 && (outcome.primary.interval.low > 0 || outcome.primary.interval.high < 0);
}

std::string shifted_in_words(const CellResult& cell) {
  const Outcome& outcome = *cell.outcome;
  return fmt::format("{} is within the margin of {}, but not the same: {}, margin {}.", cell.scenario,
                     cell.reference, difference_in_words(outcome, metric_label(outcome.metric)), outcome.margin);
}

/// "; the first difference found, at step 0: a row has 2 negatives instead of 23, those of its own rank alone": the evidence of the
/// cause that the traces show; nothing where they show none. Whether it makes the outcome was not tried.
std::string first_difference_in_words(const CellResult& cell) {
  if (!cell.mechanism || !cell.mechanism->cause || !cell.mechanism->first_divergence) return "";
  const Cause& cause = *cell.mechanism->cause;
  if (cause.code == "unexplained" || cause.evidence.empty()) return "";
  return fmt::format("; the first difference, {}: {}", step_in_words(cell.mechanism->first_divergence->step), cause.evidence);
}

std::string divergent_in_words(const CellResult& cell, bool reference_is_named) {
  const Outcome& outcome = *cell.outcome;
  return fmt::format("{} does not{}: {}{}{}.", cell.scenario,
                     reference_is_named ? "" : " train the same as " + cell.reference,
                     difference_in_words(outcome, metric_label(outcome.metric)), family_in_words(outcome),
                     first_difference_in_words(cell));
}

/// What a verdict does not rest on as firmly as its interval says.
std::vector<std::string> caveats(const Results& results) {
  CellList skewed, unsteady;
  for (const CellResult& cell : results.cells) {
    if (cell.noise || cell.anchor || cell.failure || !cell.outcome) continue;
    // Undecided cells say it themselves.
    if (!cell.power_control && cell.verdict == VerdictKind::inconclusive) continue;
    if (is_skewed(*cell.outcome)) skewed.push_back(&cell);
    if (is_unsteady(*cell.outcome)) unsteady.push_back(&cell);
  }
  std::vector<std::string> all = each_of(skewed, "have skewed differences", [](const CellResult& cell) {
    return fmt::format("In {}, {}.", cell.scenario, skew_in_words(*cell.outcome));
  });
  add(all, each_of(unsteady, "may change on another machine", [](const CellResult& cell) {
        return fmt::format("In {}, {}.", cell.scenario, rounding_in_words(*cell.outcome));
      }));
  return all;
}

/// Each cell has its own test, and all must pass: the chance that a matrix with one cell beyond its margin
/// gets this sentence is that of the one cell's test (Berger 1982), so that no level is divided.
std::string all_at_once(const SortedCells& sorted) {
  const std::size_t count = sorted.equivalent.size();
  if (count < 2 || !sorted.divergent.empty() || !sorted.undecided.empty() || !sorted.failed.empty() ||
      !sorted.uncertified.empty() || !sorted.identical.empty() || !sorted.within.empty()) {
    return "";
  }
  return fmt::format("All {} together are equivalent at level {} too, by an intersection-union test.",
                     count, sorted.equivalent.front()->outcome->alpha);
}

}  // namespace

std::vector<std::string> outcome_sentences(const Results& results, const SortedCells& sorted) {
  std::vector<std::string> all;
  const std::vector<ControlledQuestion> questions = controlled_questions(results);
  for (const CellResult& cell : results.cells) {
    if (const std::string words = drift_sentence(cell.drift); !words.empty() && cell.outcome)
      all.push_back(fmt::format("{} against {}, {}: {}", cell.scenario, cell.reference, pairs_in_words(*cell.outcome), words));
  }
  CellList same, unseen, shifted;
  for (const CellResult* cell : sorted.equivalent) {
    (is_shifted(*cell) ? shifted : is_uncontrolled(questions, *cell) ? unseen : same).push_back(cell);
  }
  if (!same.empty()) all.push_back(equivalent_in_words(same, true));
  const bool said = !same.empty() && references_of(same) == references_of(sorted.divergent);
  add(all, each_of(sorted.divergent, "do not train the same",
                   [&](const CellResult& cell) { return divergent_in_words(cell, said); }));
  // Reports show the first sentence large: one answer of each kind is the whole answer.
  if (said && sorted.divergent.size() == 1) {
    std::string& both = all[all.size() - 2];
    both.back() = ';';
    both += " " + all.back();
    all.pop_back();
  }
  if (!unseen.empty()) all.push_back(equivalent_in_words(unseen, false));
  add(all, each_of(shifted, "are within the margin, but not the same", shifted_in_words));
  if (const std::string at_once = all_at_once(sorted); !at_once.empty()) all.push_back(at_once);
  add(all, each_of(sorted.undecided, "are undecided", undecided_in_words));
  add(all, caveats(results));
  if (!varies_batch_or_rate_rule(results)) return all;
  for (const Growth& growth : results.growth) all.push_back(growth.sentence);
  return all;
}

}  // namespace lockstep
