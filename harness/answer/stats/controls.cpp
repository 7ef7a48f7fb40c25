#include "harness/answer/stats/controls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/answer/results/words.h"
#include "harness/answer/stats/estimates.h"
#include "harness/answer/stats/outcome.h"
#include "harness/plan/config/canonical.h"

namespace lockstep {
namespace {

/// A control that lies further beyond the margin than so many margins says little of differences near it.
constexpr double kFarMargins = 3;
/// A margin that is this share of what is learnt, or more, is worth a word.
constexpr double kLargeShare = 0.1;

/// What the cell's reference trains towards, as text; its name where its settings are not known.
std::string question_of(const Results& results, const CellResult& cell) {
  const auto found = std::ranges::find(results.references, cell.reference, &ReferenceResult::name);
  if (found == results.references.end() || found->config.empty()) return cell.reference;
  return learning_text(found->config);
}

bool has_pairs(const CellResult* cell) { return !cell->failure && cell->outcome && cell->outcome->n >= 2; }

constexpr std::vector<const CellResult*> ControlledQuestion::* kCells[] = {
    &ControlledQuestion::cells, &ControlledQuestion::caught, &ControlledQuestion::missed};

bool holds(const ControlledQuestion& question, const CellResult& cell) {
  return std::ranges::any_of(kCells, [&](auto list) { return std::ranges::find(question.*list, &cell) != (question.*list).end(); });
}

/// Of all cells and controls the one whose differences scatter most: what is as good as a copy of its reference hardly scatters,
/// and says nothing of how a cell would that differs. Null: none scatters.
const CellResult* widest_of(const ControlledQuestion& question) {
  const CellResult* widest = nullptr;
  for (const auto list : kCells) {
    for (const CellResult* cell : question.*list) {
      if (!has_pairs(cell) || !(cell->outcome->sd_upper > 0)) continue;
      if (widest == nullptr || cell->outcome->sd_upper > widest->outcome->sd_upper) widest = cell;
    }
  }
  return widest;
}

/// What the outcome's pairs would see at that spread, at the level of its last look; 0: not known, as of figures that no
/// judgement has.
double detectable_at(const Outcome& outcome, double sd) {
  constexpr double kLeastLevel = 1e-9, kMostLevel = 0.5;
  const bool looked = outcome.sequential && !outcome.sequential->looks.empty();
  const double alpha = looked ? outcome.sequential->looks.back().alpha_here : outcome.alpha;
  const bool usual = std::isfinite(sd) && outcome.margin > 0 && std::isfinite(outcome.margin) && alpha > kLeastLevel && alpha < kMostLevel;
  if (!usual) return 0;
  return detectable_difference({outcome.n, sd, outcome.margin, alpha, 0.0, outcome.test});
}

/// "; the margin is 21 % of the improvement of 1x24 layer over chance", where guessing is known and that is much.
std::string share_in_words(const ControlledQuestion& question, const Outcome& outcome) {
  const MetricName name = metric_name(outcome.metric);
  if (name.spec == nullptr || name.area || !name.spec->chance) return "";
  const double learnt = std::abs(outcome.primary.reference_mean - *name.spec->chance);
  if (!(outcome.margin >= kLargeShare * learnt)) return "";
  if (outcome.margin >= learnt) return fmt::format("; the margin is at least the whole improvement of {} over "
                                                   "chance", question.reference);
  return fmt::format("; the margin is {:.0f} % of the improvement of {} over chance", 100 * outcome.margin / learnt,
                     question.reference);
}

/// "; its power control 8x3 lr_scale=0.125 differs by 12 margins: it does not show that a small difference would be noticed".
std::string distance_in_words(const ControlledQuestion& question) {
  const auto margins = [](const CellResult* cell) {
    return std::abs(cell->outcome->primary.mean) / cell->outcome->margin;
  };
  std::vector<const CellResult*> shown = question.caught;
  shown.insert(shown.end(), question.divergent.begin(), question.divergent.end());
  if (shown.empty()) return "";
  const CellResult* nearest = *std::ranges::min_element(shown, {}, margins);
  if (margins(nearest) <= kFarMargins) return "";
  return fmt::format("; {} {} differs by {:.0f} margins: it does not show that a small difference would be noticed",
                     shown.size() > 1           ? "the closest cell that was found to differ,"
                     : nearest->power_control ? "its power control"
                                              : "the only cell that was found to differ,",
                     shown.size() > 1 || !nearest->power_control ? nearest->scenario + "," : nearest->scenario,
                     margins(nearest));
}

}  // namespace

bool is_caught(const CellResult& control) {
  return !control.failure && control.outcome && control.outcome->verdict == VerdictKind::divergent;
}

std::vector<ControlledQuestion> controlled_questions(const Results& results) {
  std::vector<ControlledQuestion> questions;
  std::map<std::string, std::size_t> index;
  for (const CellResult& cell : results.cells) {
    if (cell.noise || cell.anchor) continue;
    const auto [at, is_new] = index.emplace(question_of(results, cell), questions.size());
    if (is_new) questions.push_back({cell.reference, {}, {}, {}, {}});
    ControlledQuestion& question = questions[at->second];
    (!cell.power_control ? question.cells : is_caught(cell) ? question.caught : question.missed).push_back(&cell);
    if (!cell.power_control && is_caught(cell)) question.divergent.push_back(&cell);
  }
  return questions;
}

bool is_uncontrolled(const std::vector<ControlledQuestion>& questions, const CellResult& cell) {
  if (cell.verdict != VerdictKind::equivalent || cell.failure) return false;
  return std::ranges::any_of(questions, [&](const ControlledQuestion& question) {
    return !question.is_shown() && std::ranges::find(question.cells, &cell) != question.cells.end();
  });
}

std::vector<std::string> uncontrolled_references(const Results& results) {
  const std::vector<ControlledQuestion> questions = controlled_questions(results);
  std::vector<std::string> references;
  for (const CellResult& cell : results.cells) {
    if (is_uncontrolled(questions, cell) && std::ranges::find(references, cell.reference) == references.end())
      references.push_back(cell.reference);
  }
  return references;
}

std::string uncontrolled_in_words(const std::string& references, std::size_t cells) {
  return fmt::format("no power control and no other cell was found to differ from {}, so nothing shows that a "
                     "difference would be noticed in {}",
                     references, cells == 1 ? "this comparison" : "these comparisons");
}

void note_controls(Results& results) {
  const std::vector<ControlledQuestion> questions = controlled_questions(results);
  for (const ControlledQuestion& question : questions) {
    const double sd = widest_of(question) ? widest_of(question)->outcome->sd_upper : 0;
    for (CellResult& cell : results.cells) {
      if (has_pairs(&cell) && holds(question, cell)) cell.outcome->detectable = detectable_at(*cell.outcome, sd);
    }
  }
  for (CellResult& cell : results.cells) {
    if (!is_uncontrolled(questions, cell) || !cell.outcome) continue;
    std::string& sentence = cell.outcome->sentence;
    if (sentence.ends_with('.')) sentence.pop_back();
    sentence += "; " + uncontrolled_in_words(cell.reference, 1) + ".";
  }
}

std::string sight_in_words(const ControlledQuestion& question) {
  const CellResult* const widest = widest_of(question);
  if (widest == nullptr) return "";
  const double sd = widest->outcome->sd_upper;
  const Outcome* blindest = nullptr;
  double seen = 0;
  int fewest = 0, most = 0;
  for (const CellResult* cell : question.cells) {
    if (!has_pairs(cell)) continue;
    const Outcome& outcome = *cell->outcome;
    const double here = detectable_at(outcome, sd);
    if (here == 0) continue;
    if (blindest == nullptr || here > seen) {
      blindest = &outcome;
      seen = here;
    }
    fewest = fewest == 0 ? outcome.n : std::min(fewest, outcome.n);
    most = std::max(most, outcome.n);
  }
  if (blindest == nullptr) return "";
  const std::string pairs = pairs_in_words(fewest, most);
  if (!std::isfinite(seen)) {
    return fmt::format("Against {} no difference, however large, is sure to be found: {} are too few "
                       "for the {} test",
                       question.reference, pairs, name_of(blindest->test));
  }
  return fmt::format("Against {} a true difference in {} of {} or more is found with probability {:g} or more "
                     "({} with the spread of {}, at its upper bound)",
                     question.reference, metric_label(blindest->metric), format_at_least(seen, blindest->margin),
                     kWantedPower, pairs, widest->scenario) +
         share_in_words(question, *blindest) + distance_in_words(question);
}

}  // namespace lockstep
