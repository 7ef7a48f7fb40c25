#include "harness/verdict/questions/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/base/counted.h"
#include "harness/base/exit_codes.h"
#include "harness/verdict/evidence/run_evidence.h"
#include "harness/verdict/plan/question.h"
#include "harness/verdict/questions/judge.h"
#include "harness/verdict/questions/question_judge.h"
#include "harness/verdict/questions/sentences.h"
#include "harness/verdict/results/metric_names.h"
#include "harness/verdict/stats/controls.h"
#include "harness/verdict/stats/outcome.h"
#include "harness/verdict/stats/skewness.h"

namespace lockstep {
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
  for (const CellResult& cell : results.cells) occurred.push_back(exit_code_of_cell(cell));
  if (results.timing && lacks_timed_runs(*results.timing)) occurred.push_back(kExitDied);
  if (margin_refused) occurred.push_back(kExitUsage);
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
