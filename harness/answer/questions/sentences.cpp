#include "harness/answer/questions/sentences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/answer/questions/question_judge.h"
#include "harness/answer/results/suite_results.h"
#include "harness/answer/results/words.h"
#include "harness/answer/stats/controls.h"
#include "harness/answer/stats/estimates.h"
#include "harness/answer/stats/outcome.h"
#include "harness/base/text.h"
#include "harness/judge/evidence/run_evidence.h"
#include "harness/plan/matrix/matrix.h"

namespace lockstep {

static SortedCells sort_cells(const Results& results) {
  SortedCells sorted;
  for (const CellResult& cell : results.cells) {
    if (cell.certification.divergence) {
      sorted.uncertified.push_back(&cell);
    } else if (cell.verdict == VerdictKind::failed) {
      sorted.failed.push_back(&cell);
    } else if (!cell.power_control && !cell.noise && !cell.anchor) {
      switch (cell.verdict) {
        case VerdictKind::identical:
          sorted.identical.push_back(&cell);
          break;
        case VerdictKind::within_envelope:
          sorted.within.push_back(&cell);
          break;
        case VerdictKind::equivalent:
          sorted.equivalent.push_back(&cell);
          break;
        case VerdictKind::divergent:
          sorted.divergent.push_back(&cell);
          break;
        default:
          sorted.undecided.push_back(&cell);
          break;
      }
    }
  }
  return sorted;
}

std::string names_of(const CellList& cells) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(cells.size(), kMostNamed); ++i) names.push_back(cells[i]->scenario);
  if (cells.size() > kMostNamed) names.push_back(fmt::format("{} more", cells.size() - kMostNamed));
  return join_words(names);
}

/// Their references, each once; "their references" if they are many.
static std::string references_of(const CellList& cells) {
  std::vector<std::string> names;
  for (const CellResult* cell : cells) {
    if (std::ranges::find(names, cell->reference) == names.end()) names.push_back(cell->reference);
  }
  return names.size() > kMostNamed ? std::string("their references") : join_words(names);
}

void add(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// "at step 3", "before the first step".
static std::string step_in_words(int64_t step) { return step < 0 ? "before the first step" : fmt::format("at step {}", step); }

namespace {

/// " over 100 steps of seed 0": what was counted in each cell's comparison of the first seed's runs, from the fewest to the most.
/// Empty where nothing was.
template <class Count>
std::string counted_in_words(const CellList& cells, const Results& results, const char* preposition, const char* noun, Count count) {
  int64_t fewest = count(*cells.front()->mechanism), most = fewest;
  for (const CellResult* cell : cells) {
    fewest = std::min(fewest, count(*cell->mechanism));
    most = std::max(most, count(*cell->mechanism));
  }
  if (most == 0) return "";
  return fmt::format(" {} {}{}{}", preposition, fewest < most ? fmt::format("{} to ", fewest) : "", counted(most, noun),
                     results.seeds.empty() ? "" : fmt::format(" of seed {}", results.seeds.front()));
}

std::string compared_in_words(const CellList& cells, const Results& results) {
  return counted_in_words(cells, results, "over", "step", [](const Mechanism& it) { return it.compared_steps; });
}

std::string forced_in_words(const CellList& cells, const Results& results) {
  return counted_in_words(cells, results, "at", "forced step", [](const Mechanism& it) { return std::ssize(it.forced); });
}

}  // namespace

std::string mechanism_divergence(const CellResult& cell) {
  const Mechanism& m = *cell.mechanism;
  std::string why = m.sentence;
  if (why.empty() && m.first_divergence) why = m.first_divergence->sentence;
  if (why.empty() && m.first_divergence) {
    why = fmt::format("step {}, {}, {}", m.first_divergence->step, m.first_divergence->phase,
                      m.first_divergence->where);
  }
  return fmt::format("{} does not compute the same as {}{}{}", cell.scenario, cell.reference,
                     why.empty() ? "." : ": ", why);
}

std::string undecided_in_words(const CellResult& cell) {
  if (!cell.outcome) return cell.scenario + " is undecided: its outcome could not be judged.";
  return cell.outcome->sentence;
}

std::vector<std::string> exact_sentences(const Results& results) {
  CellList same, apart;
  int64_t fewest = 0, most = 0;
  std::vector<int64_t> seeds;
  for (const CellResult& cell : results.cells) {
    if (!cell.exact || cell.failure || (!cell.exact->divergence && cell.exact->steps == 0)) continue;
    (cell.exact->divergence ? apart : same).push_back(&cell);
    if (std::ranges::find(seeds, cell.exact->seed) == seeds.end()) seeds.push_back(cell.exact->seed);
    if (cell.exact->divergence) continue;
    fewest = same.size() == 1 ? cell.exact->steps : std::min(fewest, cell.exact->steps);
    most = std::max(most, cell.exact->steps);
  }
  std::vector<std::string> all;
  if (!same.empty()) {
    all.push_back(fmt::format("In exact arithmetic ({}{} of seed {}) {} and {} agree bit for bit, so what differs natively is rounding.",
                              fewest < most ? fmt::format("{} to ", fewest) : "", counted(most, "step"), fmt::join(seeds, ", "),
                              names_of(same), references_of(same)));
  }
  add(all, each_of(apart, "differ in exact arithmetic too", [](const CellResult& cell) {
        const Divergence& first = *cell.exact->divergence;
        return fmt::format("{} differs from {} in exact arithmetic too (step {}, {}, {}), so the difference is not rounding.",
                           cell.scenario, cell.reference, first.step, first.phase, first.where);
      }));
  return all;
}

std::vector<std::string> mechanism_sentences(const Results& results, const SortedCells& sorted) {
  std::vector<std::string> all;
  if (!sorted.identical.empty()) {
    all.push_back(fmt::format("{} compute{} the same as {}{}: every compared bit is equal.",
                              names_of(sorted.identical), sorted.identical.size() == 1 ? "s" : "",
                              references_of(sorted.identical), compared_in_words(sorted.identical, results)));
  }
  if (!sorted.within.empty()) {
    double used = 0, meaning = 0;
    bool measured = true, twins = true;
    for (const CellResult* cell : sorted.within) {
      used = std::max(used, cell->mechanism->band_used);
      measured = measured && cell->mechanism->band_measured;
      twins = twins && cell->mechanism->twins;
      for (const ForcedStep& step : cell->mechanism->forced) meaning = std::max(meaning, step.meaning_used);
    }
    const std::string names = names_of(sorted.within), references = references_of(sorted.within);
    const std::string where = forced_in_words(sorted.within, results);
    const char* ending = sorted.within.size() == 1 ? "s" : "";
    all.push_back(
        twins ? fmt::format("{} compute{} the same gradients as {}{} (float64: {:.1g} % of the tolerance used; rounding: {:.0f} %).", names,
                            ending, references, where, meaning * 100, used * 100)
              : fmt::format("{} compute{} the same as {}{} within the rounding tolerance ({:.0f} % of it used{}).", names,
                            ending, references, where, used * 100, measured ? "" : "; estimated, not measured"));
  }
  add(all, each_of(sorted.divergent, "do not compute the same", mechanism_divergence));
  add(all, each_of(sorted.undecided, "are undecided", [](const CellResult& cell) {
        const bool words = cell.mechanism && !cell.mechanism->sentence.empty();
        return fmt::format("{} is undecided{}{}", cell.scenario, words ? ": " : ".",
                           words ? cell.mechanism->sentence : "");
      }));
  return all;
}

// What an outcome's summary says.
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

namespace {

bool shows_effect(const Outcome& outcome) {
  return outcome.n >= 2 && (outcome.primary.interval.low > 0 || outcome.primary.interval.high < 0);
}

/// In the digits of the effect rather than of a margin that is too wide for it.
std::string effect_in_words(Outcome outcome) {
  outcome.margin = std::abs(outcome.primary.mean) / 20.0;
  return figures_in_words(outcome);
}

/// What is said of a margin that the power controls refuse; nothing if none does.
std::vector<std::string> margin_sentences(const Results& results) {
  const CellResult* weakest = nullptr;
  for (const CellResult& cell : results.cells) {
    if (!cell.power_control || cell.failure || !cell.outcome || !shows_effect(*cell.outcome)) continue;
    if (!weakest || std::abs(cell.outcome->primary.mean) < std::abs(weakest->outcome->primary.mean))
      weakest = &cell;
  }
  if (!weakest) return {};
  const Outcome& outcome = *weakest->outcome;
  const double half = std::abs(outcome.primary.mean) / 2.0;
  if (outcome.margin <= half) return {};
  // Rounded down to two digits, so that the margin that is named is one that will be taken.
  const double unit = std::pow(10.0, std::floor(std::log10(half)) - 1.0);
  return {
      fmt::format("The margin of {} is refused: it exceeds half of the effect of the power control {}, which "
                  "changes {} by {}.",
                  outcome.margin, weakest->scenario, outcome.metric, effect_in_words(outcome)),
      fmt::format("Declare a margin of at most {:.2g} under primary.", std::floor(half / unit) * unit)};
}

std::string failure_in_words(const CellResult& cell) {
  const Failure& f = *cell.failure;
  std::string place;
  if (f.rank >= 0) place += fmt::format("rank {} ", f.rank);
  place += to_word(f.kind);
  if (f.step >= 0) place += fmt::format(" at step {}", f.step);
  if (!f.operation.empty()) place += " in " + f.operation;
  return fmt::format("{} failed: {}{}{}.", cell.scenario, place, f.message.empty() ? "" : ": ", f.message);
}

/// "came out equivalent (+0.000, 95 % interval -0.004 to +0.005, 10 paired seeds)", or why there is no outcome.
std::string missed_in_words(const CellResult& control) {
  if (control.failure || !control.outcome) return "failed";
  const Outcome& o = *control.outcome;
  return fmt::format("came out {} ({})", name_of(o.verdict), figures_in_words(o));
}

std::vector<std::string> control_sentences(const Results& results) {
  std::vector<std::string> sentences;
  CellList caught;
  for (const CellResult& cell : results.cells) {
    if (!cell.power_control) continue;
    if (is_caught(cell)) {
      caught.push_back(&cell);
    } else {
      sentences.push_back(
          fmt::format("This matrix cannot tell: the power control {} {}, but it must be found to differ.",
                      cell.scenario, missed_in_words(cell)));
    }
  }
  for (const CellResult* cell : caught) {
    sentences.push_back(
        fmt::format("The power control {} was found to differ, as required: {}.", cell->scenario,
                    difference_in_words(*cell->outcome, metric_label(cell->outcome->metric))));
  }
  return sentences;
}

/// What the matrix could see, question by question: a control shows that it can see so much as itself, and no
/// less; and what it could not.
std::vector<std::string> sight_sentences(const Results& results) {
  std::vector<std::string> sentences;
  int64_t more = 0;
  for (const ControlledQuestion& question : controlled_questions(results)) {
    const std::string sentence = sight_in_words(question);
    if (sentence.empty()) continue;
    if (sentences.size() < kMostNamed)
      sentences.push_back(sentence);
    else
      ++more;
  }
  if (more > 0) {
    sentences.push_back(fmt::format("The smallest visible differences against {} are in the power table",
                                    counted(more, "further reference")));
  }
  if (std::string unseen = unseen_in_words(results.cells); !unseen.empty()) sentences.push_back(std::move(unseen));
  return sentences;
}

/// "Not compared in 8x3 local: 1x24 global, seed 6: cross_entropy_24 is nan."
std::vector<std::string> left_out_sentences(const Results& results) {
  CellList noted;
  for (const CellResult& cell : results.cells) {
    if (cell.outcome && !cell.outcome->notes.empty()) noted.push_back(&cell);
  }
  return each_of(noted, "leave out metrics", [](const CellResult& cell) {
    const std::vector<std::string>& notes = cell.outcome->notes;
    const std::string more = notes.size() > 1 ? fmt::format(" and {} more", notes.size() - 1) : "";
    return fmt::format("Not compared in {}: {}{}.", cell.scenario, notes.front(), more);
  });
}

/// "Checkpoints of 8x3: 2 of 8 saves failed, …".
std::vector<std::string> failed_save_sentences(const Results& results) {
  CellList noted;
  for (const CellResult& cell : results.cells) {
    if (!cell.failed_saves.empty()) noted.push_back(&cell);
  }
  return each_of(noted, "have checkpoints that were not saved",
                 [](const CellResult& cell) { return fmt::format("Checkpoints of {}: {}.", cell.scenario, cell.failed_saves); });
}

/// All that is to be said, the most important first.
std::vector<std::string> sentences_of(const Results& results, bool can_tell,
                                      const std::vector<std::string>& margin) {
  if (results.cells.empty()) return {"Nothing was selected."};
  const QuestionJudge& question = judge_of(results.question);
  if (question.whole_summary != nullptr) {
    if (std::vector<std::string> all = question.whole_summary(results); !all.empty()) return all;
  }
  const SortedCells sorted = sort_cells(results);
  std::vector<std::string> all, controls = control_sentences(results);
  add(all, margin);
  if (!can_tell) add(all, controls);
  // A failure that was asked for comes after what the matrix answers.
  CellList failed = sorted.failed;
  const auto asked_for =
      std::ranges::stable_partition(failed, [](const CellResult* cell) { return !cell->as_expected; });
  const CellList planted(asked_for.begin(), asked_for.end());
  failed.erase(asked_for.begin(), asked_for.end());
  add(all, each_of(failed, "failed", failure_in_words));
  add(all, each_of(sorted.uncertified, "differ from their real ranks",
                   [](const CellResult& cell) { return cell.scenario + ": " + cell.mechanism->sentence; }));
  add(all, question.sentences(results, sorted));
  add(all, exact_sentences(results));
  add(all, each_of(planted, "failed", failure_in_words));
  if (can_tell) add(all, controls);
  if (question_named(results.question).by_outcome) add(all, sight_sentences(results));
  add(all, left_out_sentences(results));
  add(all, failed_save_sentences(results));
  for (std::string& sentence : all) {
    if (!sentence.ends_with('.')) sentence += '.';
  }
  return all;
}

/// What a cell that is not as expected asks of the exit code.
int exit_code_of_cell(const CellResult& cell) {
  if (cell.as_expected) return kExitAsExpected;
  if (cell.verdict == VerdictKind::inconclusive) return kExitUndecided;
  if (cell.verdict != VerdictKind::failed || !cell.failure) return kExitUnexpected;
  const FailureKind kind = cell.failure->kind;
  if (kind == FailureKind::hung) return kExitHung;
  if (kind == FailureKind::unreadable) return kExitMachine;
  if (kind == FailureKind::nonfinite || kind == FailureKind::unmeasured || kind == FailureKind::idle) return kExitUnexpected;
  if (kind == FailureKind::interrupted || kind == FailureKind::slow) return kExitUndecided;
  return kExitDied;
}

/// Every layout is timed equally often: where one has fewer runs than another, some have failed.
bool lacks_timed_runs(const Timing& timing) {
  if (timing.rows.empty()) return false;
  const auto [fewest, most] = std::ranges::minmax(timing.rows, {}, &TimingRow::runs);
  return fewest.runs == 0 || fewest.runs < most.runs;
}

int exit_code(const Results& results, bool margin_refused) {
  const QuestionJudge& question = judge_of(results.question);
  const auto passed = question.passed != nullptr ? question.passed(results) : std::nullopt;
  if (passed) return *passed ? kExitAsExpected : kExitUnexpected;
  if (results.cells.empty()) return kExitNothing;
  std::vector<int> occurred;
  for (const CellResult& cell : results.cells) {
    // Equivalent within a margin that is too wide says nothing.
    const bool open = margin_refused && cell.verdict == VerdictKind::equivalent;
    occurred.push_back(open ? kExitUndecided : exit_code_of_cell(cell));
  }
  if (results.timing && lacks_timed_runs(*results.timing)) occurred.push_back(kExitDied);
  if (margin_refused) occurred.push_back(kExitUndecided);
  return worst_exit_code(occurred);
}

}  // namespace

int exit_code_of(const Results& results) { return exit_code(results, results.summary.margin_refused); }

Summary summarize_results(const Results& results) {
  Summary summary;
  summary.cells = static_cast<int>(results.cells.size());
  for (const CellResult& cell : results.cells) {
    summary.as_expected += cell.as_expected ? 1 : 0;
    summary.failed += cell.verdict == VerdictKind::failed ? 1 : 0;
    summary.undecided += cell.verdict == VerdictKind::inconclusive ? 1 : 0;
    if (!cell.power_control) continue;
    ++summary.power_controls;
    if (is_caught(cell))
      ++summary.power_controls_caught;
    else
      summary.can_tell = false;
  }
  const std::vector<std::string> margin = margin_sentences(results);
  summary.margin_refused = !margin.empty();
  summary.margin_text = fmt::format("{}", fmt::join(margin, " "));
  summary.uncontrolled = uncontrolled_references(results);
  summary.exit_code = exit_code(results, summary.margin_refused);
  summary.sentences = sentences_of(results, summary.can_tell, margin);
  summary.sentence = fmt::format("{}", fmt::join(summary.sentences, " "));
  return summary;
}

}  // namespace lockstep
