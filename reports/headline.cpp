#include "reports/headline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/answer/results/words.h"
#include "harness/answer/stats/controls.h"
#include "harness/answer/stats/estimates.h"
#include "harness/answer/stats/outcome.h"
#include "harness/base/text.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostNames = 4;

/// Cells that one sentence answers for.
struct CellGroup {
  std::string before, against;  ///< "With global negatives: "; "1x24 global"
  std::string every = "cell";
  std::vector<const CellResult*> cells;
  std::vector<std::string> names;
};

/// The grid column by column, then the other cells by their references.
std::vector<CellGroup> groups_of(const Results& results) {
  std::vector<CellGroup> groups;
  const std::optional<AnswerGrid> grid = grid_of(results);
  for (std::size_t column = 0; grid && column < grid->columns.size(); ++column) {
    CellGroup& group = groups.emplace_back();
    group.before = "With " + setting_words(grid->column_axis, grid->columns[column]) + ": ";
    group.against = held_against(results, *grid);
    group.every = grid->row_axis == "layout" ? "layout" : "value of " + clean_line(grid->row_axis);
    for (std::size_t row = 0; row < grid->rows.size(); ++row) {
      const CellResult* cell = grid->cells[row][column];
      if (!cell || cell->anchor) continue;
      group.cells.push_back(cell);
      group.names.push_back(name_words(grid->rows[row]));
    }
  }
  const std::size_t gridded = groups.size();
  for (const CellResult& cell : results.cells) {
    if (!is_judged(cell) || cell.power_control || (grid && grid->holds(cell))) continue;
    auto group = std::find_if(groups.begin() + static_cast<std::ptrdiff_t>(gridded), groups.end(),
                              [&](const CellGroup& each) { return each.cells.front()->reference == cell.reference; });
    if (group == groups.end()) group = groups.insert(group, {"", name_words(cell.reference), "cell", {}, {}});
    if (is_of_grown_batch(results, cell)) group->before = "With a larger batch: ";
    group->cells.push_back(&cell);
    group->names.push_back(cell.short_name.empty() ? cell.scenario : cell.short_name);
  }
  for (std::size_t i = gridded; i < groups.size(); ++i) groups[i].names = without_shared_words(groups[i].names);
  return groups;
}

std::string some_names(const std::vector<std::string>& names) {
  const std::size_t shown = names.size() > kMostNames + 1 ? kMostNames : names.size();
  std::vector<std::string> some;
  for (std::size_t i = 0; i < shown; ++i) some.push_back(name_words(names[i]));
  if (shown < names.size()) some.push_back(fmt::format("{} more", names.size() - shown));
  return join_words(some);
}

bool is_same(const CellResult& cell) {
  return cell.verdict == VerdictKind::equivalent || cell.verdict == VerdictKind::identical ||
         cell.verdict == VerdictKind::within_envelope;
}

/// "2x12 trains the same as 1x24; 4x6 and 8x3 do not; 3x8 is undecided"; where nothing shows that a difference would have been
/// seen, "2x12 came out equivalent to 1x24".
std::string group_words(const CellGroup& group, bool by_outcome, bool shown) {
  std::vector<std::string> same, other, open, failed;
  for (std::size_t i = 0; i < group.cells.size(); ++i) {
    const CellResult& cell = *group.cells[i];
    const bool fails = cell.failure || cell.verdict == VerdictKind::failed;
    (fails                                    ? failed
     : is_same(cell)                          ? same
     : cell.verdict == VerdictKind::divergent ? other
                                              : open)
        .push_back(group.names[i]);
  }
  const std::size_t all = group.cells.size();
  const std::string verb = by_outcome ? "train" : "compute", as = " the same as " + group.against,
                    found = !shown ? "came out equivalent to " + group.against : verb + as;
  if (all == 0) return "nothing was compared";
  if (all > 1 && same.size() == all)
    return fmt::format("every {} {}", group.every, shown ? verb + "s" + as : found);
  if (all > 1 && other.size() == all) return fmt::format("no {} {}s{}", group.every, verb, as);
  std::vector<std::string> parts;
  if (!same.empty()) parts.push_back(some_names(same) + " " + (shown && same.size() == 1 ? verb + "s" + as : found));
  if (!other.empty())
    parts.push_back(fmt::format("{} {} not{}", some_names(other), other.size() == 1 ? "does" : "do",
                                same.empty() || !shown ? " " + verb + as : ""));
  if (!open.empty()) parts.push_back(fmt::format("{} {} undecided", some_names(open), open.size() == 1 ? "is" : "are"));
  if (!failed.empty()) parts.push_back(some_names(failed) + " failed");
  return fmt::format("{}", fmt::join(parts, "; "));
}

/// Texts, each with the names of the cells that it is said of.
class SaidOfCells {
  static constexpr int kLongest = 240;

 public:
  void say(std::string text, const CellResult& cell) {
    text = short_line(text, kLongest);
    if (text.ends_with('.')) text.pop_back();
    if (text.empty()) return;
    auto found = std::ranges::find(said_, text, &std::pair<std::string, std::vector<std::string>>::first);
    if (found == said_.end()) found = said_.insert(found, {text, {}});
    found->second.push_back(cell.scenario);
  }
  std::string words() const {
    std::string text;
    for (const auto& [what, cells] : said_)
      text += fmt::format("{}{}: {}.", text.empty() ? "" : " ", some_names(cells), what);
    return text;
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> said_;
};

/// What was found first of cells that diverge, by its cause. Whether it makes the outcome was not tried.
std::string why_words(const Results& results) {
  SaidOfCells said;
  for (const CellResult& cell : results.cells) {
    if (!is_judged(cell) || cell.power_control || cell.failure || cell.verdict != VerdictKind::divergent) continue;
    const Mechanism* m = cell.mechanism ? &*cell.mechanism : nullptr;
    if (cell.no_negatives)
      said.say("a row has no negatives, so the loss is 0", cell);
    else if (m && m->cause && m->cause->code != "unexplained" && !m->cause->evidence.empty())
      said.say(m->cause->evidence, cell);
    else if (m && m->first_divergence)
      said.say(divergence_words(*m->first_divergence), cell);
    else
      said.say("no difference in the computation was found, or none was looked for", cell);
  }
  return said.words();
}

/// Whether exact arithmetic, which rounds no sum, agrees.
std::string exact_words(const Results& results) {
  SaidOfCells said;
  for (const CellResult& cell : results.cells) {
    if (!cell.exact || cell.exact->steps <= 0) continue;
    const Certification& c = *cell.exact;
    said.say(c.divergence ? "no: it differs in exact arithmetic too, at " + place_words(*c.divergence)
                          : fmt::format("yes: {} agree bit for bit in exact arithmetic", counted(c.steps, "step")),
             cell);
  }
  return said.words();
}

/// Metrics that read the other way than the primary one.
std::string disagreeing_words(const Results& results) {
  SaidOfCells said;
  for (const CellResult& cell : results.cells) {
    if (!cell.outcome || !is_judged(cell)) continue;
    const MetricDifference& primary = cell.outcome->primary;
    std::vector<std::string> metrics;
    for (const MetricDifference& other : cell.outcome->others)
      if (disagrees_in_sign(primary, other)) metrics.push_back(other.metric);
    if (metrics.empty()) continue;
    const bool worse = primary.higher_is_better != (primary.mean > 0);
    said.say(fmt::format("{} {}, although {} is {}", metric_list(metrics, metrics), worse ? "better" : "worse",
                         metric_words(primary.metric), worse ? "worse" : "better"), cell);
  }
  return said.words();
}

std::string predicted_words(const Growth& g) {
  const Interval& i = g.predicted_interval;
  if (std::isfinite(i.low) && std::isfinite(i.high) && i.low < i.high)
    return fmt::format("{:.2f} to {:.2f}", i.low, i.high);
  return fmt::format("{:.2f}", g.predicted_exponent);
}

std::string growth_words(const Growth& g) {
  std::string text = clean_line(g.sentence);
  if (text.empty()) return text;
  if (std::isfinite(g.measured_exponent)) {
    text += fmt::format(" Measured exponent {:.2f}", g.measured_exponent);
    if (std::isfinite(g.measured_interval.low) && std::isfinite(g.measured_interval.high))
      text += fmt::format(" ({} interval {:.2f} to {:.2f})", level_words(g.measured_interval.level),
                          g.measured_interval.low, g.measured_interval.high);
    if (std::isfinite(g.predicted_exponent))
      text += fmt::format(", predicted by the gradient noise {}", predicted_words(g));
    text += ".";
  }
  return text;
}

/// What the verdicts of computations rest on.
std::string computed_words(const Results& results) {
  std::size_t twins = 0, measured = 0, compared = 0, forced = 0;
  double most = 0;
  for (const CellResult& cell : results.cells) {
    if (!cell.mechanism || cell.failure) continue;
    const Mechanism& m = *cell.mechanism;
    ++compared, twins += m.twins, measured += m.twins || m.band_measured;
    forced = std::max(forced, m.forced.size());
    if (is_same(cell)) most = std::max(most, m.band_used);
  }
  if (compared == 0) return "Nothing was compared.";
  std::string text;
  if (forced > 0)
    text = fmt::format(
        "Gradients of {}, each from the reference's weights and batch{}{}.",
        counted(static_cast<int64_t>(forced), "step"),
        twins == compared ? ", natively and in float64, which separates meaning from rounding" : "",
        most > 0 ? "; cells that agree use at most " + band_words(most) : "");
  if (forced > 0 && measured < compared)
    text += fmt::format(" For {} the tolerance is estimated, not measured.",
                        counted(static_cast<int64_t>(compared - measured), "cell"));
  return text.empty() ? "Free runs, value by value." : text;
}

Answer sure_answer(const Results& results) {
  if (!question_named(results.question).by_outcome) return {"How sure?", computed_words(results)};
  double least = 1;
  bool any = false, all_same = true;
  for (const CellResult& cell : results.cells) {
    if (!is_judged(cell) || cell.power_control) continue;
    all_same = all_same && cell.verdict == VerdictKind::equivalent;  // A cell that failed is none of them.
    if (!cell.outcome || cell.verdict == VerdictKind::divergent || cell.outcome->n < 2) continue;
    any = true;
    least = std::min(least, cell.outcome->power);
  }
  std::string text = fmt::format("Margin ± {:g} of {}, {}; {}; α {:g}; ± is half of the {}.", results.primary.margin,
                                 metric_words(results.primary.metric), declaration_words(results), pairs_words(results),
                                 results.primary.alpha,
                                 common_level(results) ? interval_name(results) : "interval at each cell's own level");
  // Rounded down: it is a bound.
  if (any)
    text += fmt::format(" A cell without any difference would be found equivalent with probability {:.2f} or more.",
                        std::floor(100 * least) / 100);
  if (const std::string unseen = unseen_in_words(results.cells); !unseen.empty()) text += " " + unseen + ".";
  if (all_same) text += " That all are equivalent needs no correction for multiple tests: each passed its own.";
  return {"How sure?", text, any && least < 0.8 ? "und" : "ctl"};
}

Answer controls_answer(const Results& results, int decimals) {
  std::vector<std::string> caught, missed, without;
  for (const CellResult& cell : results.cells) {
    if (!cell.power_control) continue;
    const std::string figure = cell.outcome ? " (" + difference_and_half(cell.outcome->primary, decimals) + ")" : "";
    (is_missed_control(cell) ? missed : caught).push_back(name_words(cell.scenario) + figure);
  }
  const std::vector<ControlledQuestion> questions = controlled_questions(results);
  for (const ControlledQuestion& question : questions) {
    if (!question.is_shown() && !question.cells.empty()) without.push_back(name_words(question.reference));
  }
  const auto answer = [](const std::string& text, const char* css) {
    return Answer{"Can this matrix detect a difference?", text, css};
  };
  if (!missed.empty()) return answer("No: " + join_words(missed) + " had to be found to differ.", "bad");
  if (caught.empty()) return answer("Unknown: it has no power control.", "und");
  const std::string divergent =
      fmt::format("{} {} found to differ, as required: {}", counted(std::ssize(caught), "power control"),
                  caught.size() == 1 ? "was" : "were", join_words(caught));
  if (without.empty()) return answer("Yes: " + divergent + ".", "ok");
  return answer(fmt::format("Not everywhere: {}; unknown for comparisons with {}, where no cell was found to differ.",
                            divergent, join_words(without)),
                "und");
}

/// What the verdicts rest on less firmly than their intervals say.
std::string doubt_words(const Results& results) {
  SaidOfCells said;
  for (const CellResult& cell : results.cells) {
    if (!is_judged(cell) || cell.failure || !cell.outcome) continue;
    const Outcome& o = *cell.outcome;
    if (is_skewed(o))
      said.say(fmt::format("skewed differences (p {:.2g}), of which the t test may err", o.p_skewed), cell);
    if (is_unsteady(o))
      said.say(fmt::format("rounding alone changes it by {}{}", format_difference(o.rounding->shift, o.margin),
                           o.rounding->of_cell ? "" : " or more"),
               cell);
  }
  return said.words();
}

std::string drift_words(const Results& results) {
  SaidOfCells said;
  for (const CellResult& cell : results.cells) said.say(drift_sentence(cell.drift), cell);
  return said.words();
}

/// What was run, in figures.
std::string run_words(const Results& results) {
  const Summary& s = results.summary;
  return fmt::format("{}, {}{}; {}{}; exit code {}.", counted(results.steps, "step"),
                     results.seeds.size() == 1 ? "seed " : "seeds ",
                     results.seeds.empty() ? "none" : seeds_words(results.seeds), counted(s.runs, "run"),
                     s.runs_reused > 0 ? fmt::format(", {} reused", s.runs_reused) : "", s.exit_code);
}

std::string suite_words(const Results& results) {
  const SuiteResult& suite = *results.suite;
  std::string text =
      fmt::format("{} of {} in {}: {} wrong, {} undecided", counted(suite.cases, "case"), clean_line(suite.subject),
                  counted(suite.trials, "trial"), suite.faults, suite.undecided);
  for (const auto& [what, figure] : suite.facts) text += fmt::format("; {}: {}", clean_line(what), clean_line(figure));
  return fmt::format("{}; exit code {}.", text, results.summary.exit_code);
}

}  // namespace

std::vector<std::string> headline_of(const Results& results) {
  const Summary& summary = results.summary;
  if (results.suite || results.detection || results.certificate || results.cells.empty()) {
    if (!summary.sentences.empty()) return {clean_line(summary.sentences.front())};
    return summary.sentence.empty() ? std::vector<std::string>() : std::vector{clean_line(summary.sentence)};
  }
  const bool by_outcome = question_named(results.question).by_outcome;
  const std::vector<ControlledQuestion> questions =
      by_outcome ? controlled_questions(results) : std::vector<ControlledQuestion>();
  std::vector<std::string> sentences;
  for (const CellGroup& group : groups_of(results)) {
    const bool shown = std::ranges::none_of(
        group.cells, [&](const CellResult* cell) { return is_same(*cell) && is_uncontrolled(questions, *cell); });
    std::string text = group.before + group_words(group, by_outcome, shown) +
                       (shown ? "." : "; nothing shows that a difference would be noticed.");
    if (text.starts_with("every ") || text.starts_with("no ")) text[0] = static_cast<char>(text[0] - 'a' + 'A');
    sentences.push_back(std::move(text));
  }
  return sentences;
}

std::vector<Answer> answers_of(const Results& results) {
  if (results.suite) {
    constexpr std::size_t kMostFaults = 5;
    std::vector<Answer> answers;
    for (const SuiteFinding& finding : results.suite->findings) {
      if (finding.verdict != CaseVerdict::fault || answers.size() == kMostFaults) continue;
      answers.push_back({answers.empty() ? "What went wrong?" : "What else?",
                         fmt::format("{}: {} Again: {}", clean_line(finding.trial), clean_line(finding.sentence),
                                     clean_line(finding.replay)),
                         "bad"});
    }
    answers.push_back({"What was tried?", suite_words(results)});
    for (const std::string& note : results.suite->notes)
      answers.push_back({"What does it not show?", clean_line(note), "und"});
    return answers;
  }
  std::vector<Answer> answers{{"Why not?", results.detection ? "" : why_words(results), "bad"}};
  for (const Growth& growth : results.growth) {
    if (growth.from_batch == growth.to_batch || !varies_batch_or_rate_rule(results)) continue;
    answers.push_back({"Which learning-rate rule fits when the batch grows?", growth_words(growth)});
  }
  if (results.timing && !results.timing->rows.empty())
    answers.push_back({"What does it cost?", clean_line(results.timing->sentence)});
  const bool by_outcome = question_named(results.question).by_outcome;
  if (!results.cells.empty() && !results.certificate && !results.detection) answers.push_back(sure_answer(results));
  answers.push_back({"Is it only rounding?", exact_words(results)});
  answers.push_back({"How far does rounding alone drive a run?", drift_words(results)});
  answers.push_back({"Do other metrics agree?", disagreeing_words(results), "und"});
  answers.push_back({"Which results are uncertain?", doubt_words(results), "und"});
  answers.push_back({"What would decide?", more_seeds_words(results)});
  if (by_outcome) answers.push_back(controls_answer(results, decimals_for(results.primary.margin)));
  if (const std::string certified = certification_words(results); !certified.empty())
    answers.push_back({"Do real ranks give the same?", certified + "."});
  answers.push_back({"What was run?", run_words(results)});
  return answers;
}

Results with_telling_cells(const Results& results) {
  Results telling = results;
  if (!results.certificate) return telling;
  std::set<std::string> worst;
  for (const CertificateRow& row : results.certificate->rows) worst.insert(row.worst_cell);
  std::erase_if(telling.cells, [&worst](const CellResult& cell) {
    return is_as_expected(cell) && !worst.contains(cell.scenario);
  });
  return telling;
}

}  // namespace lockstep
