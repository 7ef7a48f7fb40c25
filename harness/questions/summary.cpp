#include "harness/questions/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/evidence/run_evidence.h"
#include "harness/questions/calibration/calibration.h"
#include "harness/questions/detection/detection.h"
#include "harness/questions/judge.h"
#include "harness/results/metric_names.h"
#include "harness/stats/outcome.h"
#include "harness/stats/stats.h"

namespace lockstep {
namespace {

/// Cells named one by one before the rest is only counted.
constexpr std::size_t kMostNamed = 3;

using Cells = std::vector<const CellResult*>;

bool shows_effect(const Outcome& outcome) {
  return outcome.n >= 2 && (outcome.primary.interval.low > 0 || outcome.primary.interval.high < 0);
}

bool is_caught(const CellResult& control) {
  return !control.failure && control.outcome && control.outcome->verdict == VerdictKind::divergent;
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
                  outcome.margin, weakest->scenario, outcome.metric,
                  format_signed_difference(outcome.primary.mean, half / 10.0)),
      fmt::format("Declare a margin of at most {:.2g} under primary.", std::floor(half / unit) * unit)};
}

/// "a", "a and b", "a, b, c and 9 more".
std::string names_of(const Cells& cells) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(cells.size(), kMostNamed); ++i) names.push_back(cells[i]->scenario);
  if (cells.size() > kMostNamed) names.push_back(fmt::format("{} more", cells.size() - kMostNamed));
  return join_words(names);
}

std::string references_of(const Cells& cells) {
  std::vector<std::string> names;
  for (const CellResult* cell : cells) {
    if (std::ranges::find(names, cell->reference) == names.end()) names.push_back(cell->reference);
  }
  return names.size() > kMostNamed ? std::string("their references") : join_words(names);
}

/// One sentence a cell by `describe`, for the first few; then how many more there are.
template <typename F>
std::vector<std::string> each_of(const Cells& cells, const std::string& more, F describe) {
  std::vector<std::string> sentences;
  for (std::size_t i = 0; i < std::min(cells.size(), kMostNamed); ++i)
    sentences.push_back(describe(*cells[i]));
  if (cells.size() > kMostNamed)
    sentences.push_back(fmt::format("{} more {}.", cells.size() - kMostNamed, more));
  return sentences;
}

std::string failure_in_words(const CellResult& cell) {
  const Failure& f = *cell.failure;
  std::string place;
  if (f.rank >= 0) place += fmt::format("rank {} ", f.rank);
  place += f.kind;
  if (f.step >= 0) place += fmt::format(" at step {}", f.step);
  if (!f.operation.empty()) place += " in " + f.operation;
  return fmt::format("{} failed: {}{}{}.", cell.scenario, place, f.message.empty() ? "" : ": ", f.message);
}

std::string equivalent_in_words(const Cells& cells) {
  const Outcome& first = *cells.front()->outcome;
  const std::string metric = metric_label(first.metric);
  if (cells.size() == 1) {
    return fmt::format("{} trains the same as {}: {} differs by {} ({} to {}), margin {}, {}.",
                       names_of(cells), references_of(cells), metric,
                       format_signed_difference(first.primary.mean, first.margin),
                       format_signed_difference(first.equivalence.low, first.margin),
                       format_signed_difference(first.equivalence.high, first.margin), first.margin,
                       pairs_in_words(first.n, first.n));
  }
  double most = 0;
  int fewest_pairs = first.n, most_pairs = first.n;
  for (const CellResult* cell : cells) {
    most = std::max(most, std::abs(cell->outcome->primary.mean));
    fewest_pairs = std::min(fewest_pairs, cell->outcome->n);
    most_pairs = std::max(most_pairs, cell->outcome->n);
  }
  return fmt::format("{} train the same as {}: {} differs by at most {}, margin {}, {}.", names_of(cells),
                     references_of(cells), metric, format_difference(most, first.margin), first.margin,
                     pairs_in_words(fewest_pairs, most_pairs));
}

/// ", because a row has 2 negatives instead of 23, those of its own rank alone": the evidence of the cause
/// that the traces show; nothing where they show none.
std::string reason_in_words(const CellResult& cell) {
  if (!cell.mechanism || !cell.mechanism->cause) return "";
  const Cause& cause = *cell.mechanism->cause;
  return cause.code == "unexplained" || cause.evidence.empty() ? "" : ", because " + cause.evidence;
}

std::string divergent_in_words(const CellResult& cell, bool reference_is_named) {
  const Outcome& outcome = *cell.outcome;
  return fmt::format("{} does not{}: {}{}.", cell.scenario,
                     reference_is_named ? "" : " train the same as " + cell.reference,
                     difference_in_words(outcome, metric_label(outcome.metric), reason_in_words(cell)),
                     family_in_words(outcome));
}

std::string undecided_in_words(const CellResult& cell) {
  if (!cell.outcome) return cell.scenario + " is undecided: its outcome could not be judged.";
  return cell.outcome->sentence;
}

/// "came out equivalent (+0.000)", or why there is no outcome.
std::string missed_in_words(const CellResult& control) {
  if (control.failure || !control.outcome) return "failed";
  const Outcome& o = *control.outcome;
  return fmt::format("came out {} ({})", name_of(o.verdict),
                     format_signed_difference(o.primary.mean, o.margin));
}

std::vector<std::string> control_sentences(const Results& results) {
  std::vector<std::string> sentences;
  Cells caught;
  for (const CellResult& cell : results.cells) {
    if (!cell.power_control) continue;
    if (is_caught(cell)) {
      caught.push_back(&cell);
    } else {
      sentences.push_back(
          fmt::format("This matrix cannot tell: the power control {} {}, where it must come out divergent.",
                      cell.scenario, missed_in_words(cell)));
    }
  }
  for (const CellResult* cell : caught) {
    sentences.push_back(
        fmt::format("The power control {} came out divergent, as it must: {}.", cell->scenario,
                    difference_in_words(*cell->outcome, metric_label(cell->outcome->metric))));
  }
  return sentences;
}

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

/// The cells of a matrix by what is to be said of them; power controls apart.
struct Sorted {
  Cells identical, within, equivalent, divergent, undecided, failed, uncertified;
};

Sorted sort_cells(const Results& results) {
  Sorted sorted;
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

void add(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// Each cell has its own test, and all must pass: the chance that a matrix with one cell beyond its margin
/// gets this sentence is that of the one cell's test (Berger 1982), so that no level is divided.
std::string all_at_once(const Sorted& sorted) {
  const std::size_t count = sorted.equivalent.size();
  if (count < 2 || !sorted.divergent.empty() || !sorted.undecided.empty() || !sorted.failed.empty() ||
      !sorted.uncertified.empty() || !sorted.identical.empty() || !sorted.within.empty()) {
    return "";
  }
  return fmt::format("That all {} are equivalent at once holds at level {} too: an intersection-union test.",
                     count, sorted.equivalent.front()->outcome->alpha);
}

/// "Not compared in 8x3 local: 1x24 global, seed 6: cross_entropy_24 is nan."
std::vector<std::string> left_out_sentences(const Results& results) {
  Cells noted;
  for (const CellResult& cell : results.cells) {
    if (cell.outcome && !cell.outcome->notes.empty()) noted.push_back(&cell);
  }
  return each_of(noted, "leave out metrics", [](const CellResult& cell) {
    const std::vector<std::string>& notes = cell.outcome->notes;
    const std::string more = notes.size() > 1 ? fmt::format(" and {} more", notes.size() - 1) : "";
    return fmt::format("Not compared in {}: {}{}.", cell.scenario, notes.front(), more);
  });
}

std::vector<std::string> outcome_sentences(const Results& results, const Sorted& sorted) {
  std::vector<std::string> all;
  if (!sorted.equivalent.empty()) all.push_back(equivalent_in_words(sorted.equivalent));
  if (const std::string at_once = all_at_once(sorted); !at_once.empty()) all.push_back(at_once);
  const bool said =
      !sorted.equivalent.empty() && references_of(sorted.equivalent) == references_of(sorted.divergent);
  add(all, each_of(sorted.divergent, "do not train the same",
                   [&](const CellResult& cell) { return divergent_in_words(cell, said); }));
  // Reports show the first sentence large: one answer of each kind is the whole answer.
  if (said && sorted.divergent.size() == 1) {
    all.front().back() = ';';
    all.front() += " " + all.back();
    all.pop_back();
  }
  add(all, each_of(sorted.undecided, "are undecided", undecided_in_words));
  for (const Growth& growth : results.growth) all.push_back(growth.sentence);
  return all;
}

std::vector<std::string> mechanism_sentences(const Sorted& sorted) {
  std::vector<std::string> all;
  if (!sorted.identical.empty()) {
    all.push_back(fmt::format("{} compute{} the same as {}: every compared bit is equal.",
                              names_of(sorted.identical), sorted.identical.size() == 1 ? "s" : "",
                              references_of(sorted.identical)));
  }
  if (!sorted.within.empty()) {
    double used = 0;
    bool measured = true;
    for (const CellResult* cell : sorted.within) {
      used = std::max(used, cell->mechanism->band_used);
      measured = measured && cell->mechanism->band_measured;
    }
    all.push_back(
        fmt::format("{} compute{} the same as {} within the floating-point band ({:.0f} % of it used{}).",
                    names_of(sorted.within), sorted.within.size() == 1 ? "s" : "",
                    references_of(sorted.within), used * 100, measured ? "" : "; bound, not measured"));
  }
  add(all, each_of(sorted.divergent, "do not compute the same", mechanism_divergence));
  add(all, each_of(sorted.undecided, "are undecided", [](const CellResult& cell) {
        const bool words = cell.mechanism && !cell.mechanism->sentence.empty();
        return fmt::format("{} is undecided{}{}", cell.scenario, words ? ": " : ".",
                           words ? cell.mechanism->sentence : "");
      }));
  return all;
}

std::vector<std::string> certificate_sentences(const Results& results, const Sorted& sorted) {
  std::vector<std::string> all;
  const std::size_t certified = sorted.identical.size() + sorted.within.size();
  const CertificateRow* worst = nullptr;
  for (const CertificateRow& row : results.certificate->rows) {
    if (row.certified == row.cases && row.cases > 0 && (!worst || row.worst > worst->worst)) worst = &row;
  }
  if (certified > 0 && worst) {
    all.push_back(
        fmt::format("{} of {} cases are certified: their gradients are those of the plain reference in one "
                    "process to {:g} of "
                    "their size; at most {:.2g} of that is used, by {} with {} rank{}.",
                    certified, results.cells.size(), results.certificate->exact, worst->worst, worst->loss,
                    worst->world_size, worst->world_size == 1 ? "" : "s"));
  }
  add(all, each_of(sorted.divergent, "are not certified", mechanism_divergence));
  add(all, each_of(sorted.undecided, "are undecided", undecided_in_words));
  return all;
}

/// "A1, A6" of the claims in that state.
std::string claims_in(const Results& results, ClaimState state) {
  std::vector<std::string> ids;
  for (const ClaimResult& claim : results.claims) {
    if (claim.state == state) ids.push_back(claim.id);
  }
  return join_words(ids);
}

std::vector<std::string> claim_sentences(const Results& results) {
  std::vector<std::string> parts;
  const auto add_part = [&](ClaimState state, const char* one, const char* several) {
    const auto count = std::ranges::count(results.claims, state, &ClaimResult::state);
    if (count > 0)
      parts.push_back(fmt::format("{} {}", claims_in(results, state), count == 1 ? one : several));
  };
  add_part(ClaimState::holds, "holds", "hold");
  add_part(ClaimState::does_not_hold, "does not hold", "do not hold");
  add_part(ClaimState::undecided, "is undecided", "are undecided");
  add_part(ClaimState::not_testable, "cannot be tested here", "cannot be tested here");
  if (const auto waiting = std::ranges::count(results.claims, ClaimState::waiting, &ClaimResult::state);
      waiting > 0)
    parts.push_back(fmt::format("{} wait{}", waiting, waiting == 1 ? "s" : ""));
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
  return {"Of what was told, " + text + "."};
}

/// All that is to be said, the most important first.
std::vector<std::string> sentences_of(const Results& results, bool can_tell,
                                      const std::vector<std::string>& margin) {
  if (results.cells.empty()) return {"Nothing was selected."};
  if (results.detection) return detection_sentences(*results.detection);
  if (results.calibration) return {calibration_sentence(*results.calibration)};
  const Sorted sorted = sort_cells(results);
  std::vector<std::string> all, controls = control_sentences(results);
  add(all, margin);
  if (!can_tell) add(all, controls);
  // A failure that was asked for comes after what the matrix answers.
  Cells failed = sorted.failed;
  const auto asked_for =
      std::ranges::stable_partition(failed, [](const CellResult* cell) { return !cell->as_expected; });
  const Cells planted(asked_for.begin(), asked_for.end());
  failed.erase(asked_for.begin(), asked_for.end());
  add(all, each_of(failed, "failed", failure_in_words));
  add(all, each_of(sorted.uncertified, "part from their real ranks",
                   [](const CellResult& cell) { return cell.scenario + ": " + cell.mechanism->sentence; }));
  if (!results.claims.empty())
    add(all, claim_sentences(results));
  else if (results.certificate)
    add(all, certificate_sentences(results, sorted));
  else if (asks_outcome(results.question))
    add(all, outcome_sentences(results, sorted));
  else
    add(all, mechanism_sentences(sorted));
  add(all, each_of(planted, "failed", failure_in_words));
  if (can_tell) add(all, controls);
  add(all, left_out_sentences(results));
  for (std::string& sentence : all) {
    if (!sentence.ends_with('.')) sentence += '.';
  }
  return all;
}

/// What a cell that is not as expected asks of the exit code.
int code_of(const CellResult& cell) {
  if (cell.as_expected) return 0;
  if (cell.verdict == VerdictKind::inconclusive) return 5;
  if (cell.verdict != VerdictKind::failed || !cell.failure) return 1;
  const std::string& kind = cell.failure->kind;
  if (kind == "hung") return 4;
  if (kind == "unreadable") return 7;
  if (kind == "nonfinite" || kind == "unmeasured" || kind == kIdleFault) return 1;
  if (kind == "interrupted") return 5;
  return 3;
}

/// Every layout is timed equally often: where one has fewer runs than another, some have failed.
bool lacks_timed_runs(const Timing& timing) {
  if (timing.rows.empty()) return false;
  const auto [fewest, most] = std::ranges::minmax(timing.rows, {}, &TimingRow::runs);
  return fewest.runs == 0 || fewest.runs < most.runs;
}

int exit_code(const Results& results, bool margin_refused) {
  if (results.cells.empty()) return 6;
  std::vector<int> occurred;
  for (const CellResult& cell : results.cells) occurred.push_back(code_of(cell));
  for (const ClaimResult& claim : results.claims) {
    if (!claim.as_expected) occurred.push_back(claim.state == ClaimState::undecided ? 5 : 1);
  }
  if (results.timing && lacks_timed_runs(*results.timing)) occurred.push_back(3);
  if (margin_refused) occurred.push_back(2);
  for (int code : std::array{7, 2, 3, 4, 1, 5}) {
    if (std::ranges::find(occurred, code) != occurred.end()) return code;
  }
  return 0;
}

}  // namespace

int exit_code_of(const Results& results) {
  // Rates decide there, not each trial.
  if (results.detection && !results.cells.empty()) return results.detection->passed ? 0 : 1;
  if (results.calibration) return results.calibration->passed ? 0 : 1;
  return exit_code(results, results.summary.margin_refused);
}

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
  summary.exit_code = results.detection || results.calibration ? exit_code_of(results)
                                                               : exit_code(results, summary.margin_refused);
  summary.sentences = sentences_of(results, summary.can_tell, margin);
  summary.sentence = fmt::format("{}", fmt::join(summary.sentences, " "));
  return summary;
}

}  // namespace lockstep
