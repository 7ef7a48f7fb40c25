// What each key does is told by bits at one layout; then the verdict between layouts must say the same, and name the key.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "harness/base/counted.h"
#include "harness/verdict/compare/forced/values.h"
#include "harness/verdict/compare/rounding_bound.h"
#include "harness/verdict/compare/step_pairs.h"
#include "harness/verdict/compare/step_records.h"
#include "harness/verdict/questions/config_pairs/pairs.h"
#include "harness/verdict/questions/matrix_evidence.h"
#include "harness/verdict/questions/question_judge.h"
#include "harness/verdict/questions/sentences.h"

namespace lockstep::questions::config_pairs {
namespace {

/// What another value of a key does to a run of the same layout.
enum class Effect { none, rounding, training };

/// Settings that change bits by design and nothing else: another order of rows, sums without rounding.
bool is_of_rounding(const std::pair<std::string, std::string>& setting) {
  return setting.first == "arithmetic" || setting == std::pair<std::string, std::string>("perturb", "row_order");
}

/// How far apart the parameters of two runs are that both kept whole, relative to their size; infinite where shapes differ.
double apart(const StepRecords& a, const StepRecords& b) {
  double gap = 0, size = 0;
  for (const Record& x : a.records) {
    if (x.phase != Phase::parameters) continue;
    const Record* y = find_record(b, Phase::parameters, x.name);
    if (!y) continue;
    if (x.shape != y->shape) return std::numeric_limits<double>::infinity();
    const auto of_a = whole_tensor(x), of_b = whole_tensor(*y);
    if (!of_a || !of_b) continue;
    gap = std::hypot(gap, distance(of_a->values, of_b->values));
    size = std::hypot(size, norm(of_a->values));
  }
  return gap > 0 ? gap / std::max(size, std::numeric_limits<double>::min()) : 0;
}

/// Throws TraceError.
Effect effect_of(const MatrixEvidence& evidence, const Cell& cell) {
  const SeedPair runs = evidence.arms().pair_seeds(cell).front();
  if (!runs.cell || !runs.reference) throw TraceError(cell.name + ": no run");
  StepPairs pairs(evidence.dir_of(*runs.reference), evidence.dir_of(*runs.cell));
  Effect effect = Effect::none;
  while (pairs.next()) {
    const StepOfRun &a = pairs.step_a(), &b = pairs.step_b();
    const double gap = apart(a.ranks[0], b.ranks[0]);
    // Weights before the first step are drawn: they do not round. Another precision is another run, whatever it changes.
    const bool small = gap <= rounding_bound(0) && a.step >= 0 && cell.settings.front().first != "precision";
    if (gap > 0 && !small && !is_of_rounding(cell.settings.front())) return Effect::training;
    if (gap > 0) effect = Effect::rounding;
  }
  return effect;
}

/// By `config-differs`, or by the cause that says what the key does.
bool names(const CellResult& result, const std::string& key) {
  if (!result.mechanism || !result.mechanism->cause) return false;
  const Cause& cause = *result.mechanism->cause;
  return cause.evidence.find("the configs differ in " + key + " ") != std::string::npos || cause.code == key + "-differs";
}

/// What a pair's runs of one layout show.
struct Shown {
  std::size_t cell = 0;  ///< of that layout
  std::optional<Effect> effect = std::nullopt;  ///< nothing: not yet read
};

void complete(const MatrixEvidence& evidence, Results& results) {
  const std::vector<Cell>& cells = evidence.matrix().cells;
  std::map<std::string, Shown> shown;  // by the pair's name
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].paired) shown.try_emplace(cells[i].short_name, Shown{i});
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    CellResult& result = results.cells[i];
    const auto own = shown.find(cells[i].short_name);
    if (result.failure || own == shown.end()) continue;
    const std::string& key = cells[i].settings.front().first;
    if (!own->second.effect) own->second.effect = effect_of(evidence, cells[own->second.cell]);
    const Effect effect = *own->second.effect;
    if (effect == Effect::training) {
      result.expected = {VerdictKind::divergent};
      result.as_expected = result.verdict == VerdictKind::divergent && (cells[i].paired || names(result, key));
    } else if (cells[i].paired) {
      result.expected = {result.verdict};  // it is what tells
      result.as_expected = true;
    } else {
      result.expected = {VerdictKind::identical, VerdictKind::within_envelope};
      // Exact against native is not judged: see MatrixJudge::judge_computing.
      if (key == "arithmetic") result.expected.push_back(VerdictKind::inconclusive);
      // Where bits differ at one layout there is a difference, if a small one; then its key must be told.
      const CellResult& bits = results.cells[own->second.cell];
      const bool told = bits.verdict == VerdictKind::divergent && result.verdict == VerdictKind::divergent && names(result, key);
      if (told) result.expected.push_back(VerdictKind::divergent);
      result.as_expected = std::ranges::find(result.expected, result.verdict) != result.expected.end();
    }
  }
}

/// Counts of the pairs whose key acts, and of those whose key does not.
struct Counts {
  int64_t acts = 0, found = 0, named = 0, idle = 0, silent = 0;
};

std::vector<std::string> whole_summary(const Results& results) {
  Counts counts;
  std::vector<std::string> wrong;
  for (const CellResult& cell : results.cells) {
    const bool tells = cell.short_name != cell.scenario;
    if (tells || cell.expected.empty()) continue;
    if (cell.expected.front() == VerdictKind::divergent) {
      ++counts.acts;
      counts.found += cell.verdict == VerdictKind::divergent;
      counts.named += cell.as_expected;
    } else {
      ++counts.idle;
      counts.silent += cell.as_expected;
    }
    if (!cell.as_expected) wrong.push_back(cell.scenario);
  }
  if (counts.acts + counts.idle == 0) return {};
  std::vector<std::string> all{
      fmt::format("Of {} of configs whose key changes training, {} are found and {} named by their key.", counted(counts.acts, "pair"),
                  counts.found, counts.named),
      fmt::format("Of {} whose key changes nothing beyond rounding, {} raise no alarm.", counted(counts.idle, "pair"), counts.silent)};
  for (std::size_t i = 0; i < std::min(wrong.size(), kMostNamed); ++i) all.push_back(wrong[i] + " has another result.");
  if (wrong.size() > kMostNamed) all.push_back(fmt::format("{} more have another result.", wrong.size() - kMostNamed));
  return all;
}

}  // namespace

const QuestionJudge& judge() {
  static const QuestionJudge kJudge{
      .verdict = &verdict_by_mechanism,
      .omits_references = [](const Results&) { return true; },
      .complete = &complete,
      .sentences = &mechanism_sentences,
      .whole_summary = &whole_summary,
  };
  return kJudge;
}

}  // namespace lockstep::questions::config_pairs
