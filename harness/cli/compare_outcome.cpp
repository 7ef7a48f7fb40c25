#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "harness/base/clean_text.h"
#include "harness/base/json_number.h"
#include "harness/cli/commands.h"
#include "harness/cli/compare.h"
#include "harness/cli/compare_json.h"
#include "harness/cli/words.h"
#include "harness/verdict/stats/compare_arms.h"

namespace lockstep {
namespace {

using nlohmann::json;

json to_json(const Outcome& o) {
  json differences = json::object();
  for (std::size_t i = 0; i < o.seeds.size() && i < o.differences.size(); ++i)
    differences[std::to_string(o.seeds[i])] = json_number(o.differences[i]);
  return {{"metric", o.metric},
          {"margin", o.margin},
          {"alpha", o.alpha},
          {"n", o.n},
          {"reference_mean", json_number(o.primary.reference_mean)},
          {"cell_mean", json_number(o.primary.cell_mean)},
          {"mean", json_number(o.primary.mean)},
          {"sd", json_number(o.primary.sd)},
          {"interval", interval_json(o.primary.interval)},
          {"equivalence", interval_json(o.equivalence)},
          {"power", json_number(o.power)},
          {"power_half", json_number(o.power_half)},
          {"seeds_needed", o.seeds_needed},
          {"seeds_needed_half", o.seeds_needed_half},
          {"p_equivalent", json_number(o.p_equivalent)},
          {"p_different", json_number(o.p_different)},
          {"notes", o.notes},
          {"differences", differences}};
}

json to_json(const OutcomeComparison& c) {
  return {
      {"reference", c.reference},
      {"cell", c.cell},
      {"verdict", name_of(c.verdict)},
      {"sentence", c.sentence},
      {"statistics", c.outcome ? to_json(*c.outcome) : json(nullptr)},
      {"failure",
       c.failure ? json{{"kind", to_word(c.failure->kind)}, {"run", c.failure->run}, {"message", c.failure->message}}
                 : json(nullptr)},
      {"question_differences", differences_json(c.differences)}};
}

/// A metric that no run has is a slip of the pen; runs that failed have none.
void require_measured(const std::string& metric, const std::vector<ArmPair>& pairs) {
  std::set<std::string> measured;
  for (const ArmPair& pair : pairs) {
    for (const Arm* arm : {&pair.reference, &pair.cell}) {
      for (const auto& [seed, run] : arm->runs) {
        for (const auto& [name, value] : run.evidence.metrics) measured.insert(name);
      }
    }
  }
  if (!measured.empty()) require_known(metric, {measured.begin(), measured.end()}, "--metric", "metric");
}

std::string outcomes_text(const std::vector<OutcomeComparison>& comparisons,
                          const std::vector<std::string>& alone) {
  std::string text;
  for (const OutcomeComparison& c : comparisons) {
    text += fmt::format("{}: {}\n  {} against {}\n", name_of(c.verdict), c.sentence, c.cell, c.reference);
    if (c.outcome && c.outcome->verdict == VerdictKind::inconclusive && !leaves_out(c.outcome->primary.interval, 0)) {
      text += fmt::format("  seeds needed: {}{}\n", c.outcome->seeds_needed,
                          c.outcome->n < 2 ? " or more; one seed gives no spread" : "");
    }
    if (c.outcome) {
      for (const std::string& note : c.outcome->notes) text += "  not compared: " + note + "\n";
    }
    for (const QuestionDifference& difference : c.differences)
      text += "  across questions: " + difference_text(difference) + "\n";
  }
  for (const std::string& each : alone) text += "not compared: " + each + "\n";
  return text;
}

std::string outcomes_json(const std::vector<OutcomeComparison>& comparisons,
                          const std::vector<std::string>& alone) {
  json list = json::array();
  for (const OutcomeComparison& comparison : comparisons) list.push_back(to_json(comparison));
  const json document = {{"rule", "tost"}, {"comparisons", list}, {"not_compared", alone}};
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

int compare_outcomes_command(const CompareCommandOptions& options, const std::vector<std::string>& expected,
                             const Console& console) {
  MatchedArms matched =
      match_arms(read_arms(options.run_a, options.metric), read_arms(options.run_b, options.metric));
  const Given given{options.metric, options.margin, options.alpha, {}};
  require_same_question(matched, given, options.across);
  require_paired_seeds(matched.pairs);
  std::vector<OutcomeComparison> comparisons;
  std::vector<int> codes;
  for (const ArmPair& pair : matched.pairs) {
    const Primary primary = primary_of(pair.reference, pair.cell, given);
    if (!options.metric.empty()) require_measured(options.metric, matched.pairs);
    comparisons.push_back(compare_arms(pair, primary));
    codes.push_back(comparison_exit_code(comparisons.back().verdict, expected));
  }
  console.out << (options.json ? clean_json(outcomes_json(comparisons, matched.alone))
                               : clean_text(outcomes_text(comparisons, matched.alone)));
  return worst_exit_code(codes);
}

}  // namespace lockstep
