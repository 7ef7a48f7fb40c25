// What `compare --rule mlperf` prints.

#include <fmt/format.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include "harness/base/json_number.h"
#include "harness/cli/compare_json.h"
#include "harness/cli/compare_mlperf.h"
#include "harness/verdict/results/interval_words.h"

namespace lockstep {
namespace {

using nlohmann::json;

std::string unit_of(const MlperfRules& rules) { return rules.samples ? "samples" : "epochs"; }

std::string point_text(const MlperfComparison& c) {
  const ReferencePoint& point = *c.judgement.point;
  const std::string runs = point.interpolated
                               ? "interpolated"
                               : fmt::format("{} runs, the best {} and the worst {} dropped",
                                             point.to_converge.size(), c.rules.rejected, c.rules.rejected);
  return fmt::format("  reference   {}: batch {}, mean {:.6g} {} ({}), sd {:.4g}, Max Speedup {:.4g}\n",
                     point.name, point.batch, point.mean, unit_of(c.rules), runs, point.sd,
                     point.max_speedup);
}

std::string comparison_text(const MlperfComparison& c) {
  const MlperfJudgement& j = c.judgement;
  std::string text;
  if (j.message.empty()) {
    text = fmt::format("RCP test undecided: {}\n", c.submission);
  } else {
    text = fmt::format("{}, {} {}: {}\n", j.message, j.check, name_of(j.verdict), c.submission);
  }
  if (j.point) text += point_text(c);
  if (j.pruned > 0)
    text += fmt::format("  reference   {} of {} points pruned\n", j.pruned, j.pruned + j.points);
  if (std::isfinite(j.mean)) {
    text += fmt::format("  submission  mean {:.6g} {} ({} runs, {} did not converge)\n", j.mean,
                        unit_of(c.rules), j.runs, j.failed_runs);
  }
  if (!j.sentence.empty()) text += "  " + j.sentence + "\n";
  text += fmt::format("  two-sided   {}: {}\n", name_of(c.own.verdict), c.own.sentence);
  if (c.own.outcome && c.own.difference) {
    const UnpairedDifference& d = *c.own.difference;
    text += fmt::format("  to converge {:+.6g} {} ({} interval {:+.6g} to {:+.6g}, unpaired)\n", d.mean,
                        unit_of(c.rules), level_words(d.interval.level), d.interval.low, d.interval.high);
  }
  for (const QuestionDifference& difference : c.differences)
    text += "  across questions: " + difference_text(difference) + "\n";
  for (const std::string& note : c.notes) text += "  note: " + note + "\n";
  return text;
}

json point_json(const ReferencePoint& point) {
  return {{"name", point.name},
          {"batch", point.batch},
          {"runs", point.to_converge.size()},
          {"mean", json_number(point.mean)},
          {"sd", json_number(point.sd)},
          {"least_mean", json_number(point.least_mean)},
          {"max_speedup", json_number(point.max_speedup)},
          {"interpolated", point.interpolated}};
}

json own_json(const OwnVerdict& own) {
  json difference = nullptr;
  if (own.difference) {
    difference = {{"mean", json_number(own.difference->mean)},
                  {"interval", interval_json(own.difference->interval)},
                  {"equivalence", interval_json(own.difference->equivalence)},
                  {"p_slower", own.difference->p_slower},
                  {"p_faster", own.difference->p_faster}};
  }
  return {{"verdict", name_of(own.verdict)}, {"sentence", own.sentence}, {"to_converge", difference}};
}

json to_json(const MlperfComparison& c) {
  const MlperfJudgement& j = c.judgement;
  return {{"reference", c.reference},
          {"submission", c.submission},
          {"benchmark", c.rules.benchmark},
          {"unit", unit_of(c.rules)},
          {"verdict", name_of(j.verdict)},
          {"check", j.check},
          {"message", j.message},
          {"sentence", j.sentence},
          {"point", j.point ? point_json(*j.point) : json(nullptr)},
          {"points", j.points},
          {"pruned", j.pruned},
          {"runs", j.runs},
          {"failed_runs", j.failed_runs},
          {"mean", json_number(j.mean)},
          {"normalisation", json_number(j.normalisation)},
          {"two_sided", own_json(c.own)},
          {"notes", c.notes},
          {"question_differences", differences_json(c.differences)}};
}

}  // namespace

std::string mlperf_text(const std::vector<MlperfComparison>& comparisons) {
  std::string text;
  for (const MlperfComparison& comparison : comparisons) text += comparison_text(comparison);
  return text;
}

std::string mlperf_json(const std::vector<MlperfComparison>& comparisons) {
  json list = json::array();
  for (const MlperfComparison& comparison : comparisons) list.push_back(to_json(comparison));
  const json document = {{"rule", "mlperf"}, {"comparisons", list}};
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
