#include "harness/verdict/questions/sentences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/base/counted.h"
#include "harness/base/word_list.h"
#include "harness/verdict/evidence/run_evidence.h"

namespace lockstep {

SortedCells sort_cells(const Results& results) {
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

std::string references_of(const CellList& cells) {
  std::vector<std::string> names;
  for (const CellResult* cell : cells) {
    if (std::ranges::find(names, cell->reference) == names.end()) names.push_back(cell->reference);
  }
  return names.size() > kMostNamed ? std::string("their references") : join_words(names);
}

void add(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

std::string step_in_words(int64_t step) { return step < 0 ? "before the first step" : fmt::format("at step {}", step); }

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

}  // namespace lockstep
