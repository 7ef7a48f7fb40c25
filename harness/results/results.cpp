// results.json, written.

#include "harness/results/results.h"

#include "harness/base/sealed_json.h"
#include "harness/results/results_calibration.h"
#include "harness/results/results_fields.h"
#include "harness/results/results_growth.h"
#include "harness/results/results_learning.h"
#include "harness/results/results_timing.h"

namespace lockstep {
namespace {

using namespace results_fields;

Json rows(const std::vector<std::pair<std::string, std::string>>& pairs) {
  return list(pairs, [](const auto& pair) { return Json{{"key", pair.first}, {"value", pair.second}}; });
}

Json verdict(VerdictKind kind) { return name_of(kind); }

Json divergence(const Divergence& d) {
  return {{"step", d.step}, {"phase", d.phase},       {"rank", d.rank},     {"where", d.where},
          {"kind", d.kind}, {"expected", d.expected}, {"actual", d.actual}, {"sentence", d.sentence}};
}

Json cause(const Cause& c) {
  return {
      {"code", c.code}, {"confidence", number(c.confidence)}, {"evidence", c.evidence}, {"remedy", c.remedy}};
}

Json signature(const GradientSignature& g) {
  return {{"group", g.group},
          {"ratio", exact(g.ratio)},
          {"cosine", exact(g.cosine)},
          {"residual", exact(g.residual)},
          {"difference", exact(g.difference)},
          {"band", exact(g.band)}};
}

/// Without first divergence and cause, which stand in the verdict itself.
Json mechanism(const Mechanism& m) {
  Json forced = list(m.forced, [](const ForcedStep& step) {
    return Json{{"step", step.step},
                {"band_used", exact(step.band_used)},
                {"worst_tensor", step.worst_tensor},
                {"groups", list(step.groups, signature)}};
  });
  return {{"verdict", verdict(m.verdict)},      {"sentence", m.sentence},
          {"band_used", exact(m.band_used)},    {"band_measured", m.band_measured},
          {"compared_steps", m.compared_steps}, {"forced", std::move(forced)}};
}

Json metric_difference(const MetricDifference& d) {
  return {{"metric", d.metric},
          {"reference_mean", exact(d.reference_mean)},
          {"cell_mean", exact(d.cell_mean)},
          {"mean", exact(d.mean)},
          {"sd", exact(d.sd)},
          {"interval", interval(d.interval)},
          {"higher_is_better", d.has_direction ? Json(d.higher_is_better) : Json(nullptr)}};
}

Json outcome(const Outcome& o) {
  return {{"verdict", verdict(o.verdict)},
          {"sentence", o.sentence},
          {"metric", o.metric},
          {"others", list(o.others, metric_difference)}};
}

Json statistics(const Outcome& o) {
  Json pairs = Json::array();
  for (std::size_t i = 0; i < o.seeds.size(); ++i) {
    pairs.push_back({{"seed", o.seeds[i]}, {"difference", exact(o.differences.at(i))}});
  }
  Json statistics = {{"margin", exact(o.margin)},
                     {"alpha", exact(o.alpha)},
                     {"n", o.n},
                     {"primary", metric_difference(o.primary)},
                     {"equivalence", interval(o.equivalence)},
                     {"power", exact(o.power)},
                     {"seeds_needed", o.seeds_needed},
                     {"sequential", optional(o.sequential, sequential_to_json)},
                     {"pairs", std::move(pairs)}};
  write_learning(o, statistics);
  return statistics;
}

Json certification(const Certification& c) {
  return {{"wanted", c.wanted}, {"steps", c.steps},     {"asked", c.asked},
          {"seed", c.seed},     {"backend", c.backend}, {"divergence", optional(c.divergence, divergence)}};
}

Json failure(const Failure& f) {
  return {{"run", f.run},
          {"kind", f.kind},
          {"rank", f.rank},
          {"step", f.step},
          {"operation", f.operation},
          {"message", f.message},
          {"last_lines", f.last_lines}};
}

Json curve(const CurveBand& band) {
  return {{"metric", band.metric},
          {"steps", band.steps},
          {"median", list(band.median, number)},
          {"low", list(band.low, number)},
          {"high", list(band.high, number)}};
}

Json costs(const StepCosts& c) {
  return {{"energies", number(c.energies)}, {"bytes", number(c.bytes)}, {"seconds", number(c.seconds)}};
}

Json certificate(const Certificate& c) {
  Json rows = list(c.rows, [](const CertificateRow& row) {
    return Json{{"loss", row.loss},
                {"world_size", row.world_size},
                {"cases", row.cases},
                {"certified", row.certified},
                {"worst", exact(row.worst)},
                {"worst_cell", row.worst_cell},
                {"worst_step", row.worst_step},
                {"worst_group", signature(row.worst_group)},
                {"costs", costs(row.costs)},
                {"time_to_local", number(row.time_to_local)}};
  });
  return {{"exact", number(c.exact)}, {"steps", c.steps}, {"rows", std::move(rows)}};
}

Json condition(const ConditionResult& c) {
  return {{"text", c.text},
          {"figures", c.figures},
          {"state", name_of(c.state)},
          {"value", exact(c.value)},
          {"interval", interval(c.interval)},
          {"cells", c.cells},
          {"runs", c.runs}};
}

Json claim(const ClaimResult& c) {
  return {{"id", c.id},
          {"told", c.told},
          {"state", name_of(c.state)},
          {"expected", optional(c.expected, [](ClaimState state) { return name_of(state); })},
          {"as_expected", c.as_expected},
          {"reason", c.reason},
          {"conditions", list(c.conditions, condition)},
          {"shows", c.shows}};
}

Json cell(const CellResult& c) {
  const Divergence* first =
      c.mechanism && c.mechanism->first_divergence ? &*c.mechanism->first_divergence : nullptr;
  const Cause* why = c.cause ? &*c.cause : c.mechanism && c.mechanism->cause ? &*c.mechanism->cause : nullptr;
  return {{"scenario", c.scenario},
          {"run", c.run},
          {"reference", c.reference},
          {"reference_run", c.reference_run},
          {"verdict", verdict(c.verdict)},
          {"expected", list(c.expected, verdict)},
          {"as_expected", c.as_expected},
          {"power_control", c.power_control},
          {"noise", c.noise},
          {"anchor", c.anchor},
          {"first_divergence", first ? divergence(*first) : Json(nullptr)},
          {"cause", why ? cause(*why) : Json(nullptr)},
          {"mechanism", optional(c.mechanism, mechanism)},
          {"outcome", optional(c.outcome, outcome)},
          {"statistics", optional(c.outcome, statistics)},
          {"certified_steps", c.certification.steps},
          {"certification", certification(c.certification)},
          {"failure", optional(c.failure, failure)},
          {"costs", optional(c.costs, costs)},
          {"rerun", c.rerun},
          {"replay", c.replay},
          {"settings", rows(c.settings)},
          {"config", rows(c.config)},
          {"curves", list(c.curves, curve)}};
}

Json reference(const ReferenceResult& r) {
  Json means = Json::object();
  for (const auto& [metric, mean] : r.metric_means) means[metric] = exact(mean);
  return {{"name", r.name},
          {"metric_means", std::move(means)},
          {"config", rows(r.config)},
          {"curves", list(r.curves, curve)}};
}

Json detection_rate(const DetectionRate& r) {
  return {{"what", r.what},
          {"hits", r.hits},
          {"of", r.of},
          {"interval", interval(r.interval)},
          {"asked", r.asked < 0 ? Json(nullptr) : Json(r.asked)},
          {"at_most", r.at_most},
          {"enough", r.enough}};
}

Json detection_row(const DetectionRow& r) {
  return {{"mutant", r.mutant},
          {"report", r.report},
          {"trials", r.trials},
          {"caught", r.caught},
          {"exact_step", r.exact_step},
          {"exact_place", r.exact_place},
          {"exact", r.exact},
          {"right_cause", r.right_cause},
          {"wrong_cause", r.wrong_cause},
          {"by_loss_curve", r.by_loss_curve},
          {"first_found", r.first_found}};
}

Json detection(const Detection& d) {
  const auto miss = [](const DetectionMiss& m) {
    return Json{
        {"cell", m.cell}, {"wrong", m.wrong}, {"planted", m.planted}, {"said", m.said}, {"rerun", m.rerun}};
  };
  return {{"passed", d.passed},
          {"loss_tolerance", d.loss_tolerance},
          {"clean", d.clean},
          {"false_alarms", d.false_alarms},
          {"rates", list(d.rates, detection_rate)},
          {"detectors", d.detectors},
          {"mutants", list(d.rows, detection_row)},
          {"misses", list(d.misses, miss)}};
}

Json summary(const Summary& s) {
  return {{"sentence", s.sentence},
          {"exit_code", s.exit_code},
          {"can_tell", s.can_tell},
          {"margin_refused", s.margin_refused},
          {"margin_text", s.margin_text},
          {"cells", s.cells},
          {"as_expected", s.as_expected},
          {"failed", s.failed},
          {"undecided", s.undecided},
          {"power_controls", s.power_controls},
          {"power_controls_caught", s.power_controls_caught},
          {"runs", s.runs},
          {"runs_reused", s.runs_reused}};
}

}  // namespace

std::string results_to_json(const Results& r) {
  Json document = {{"schema_version", r.schema_version},
                   {"name", r.name},
                   {"config_file", r.config_file},
                   {"question", r.question},
                   {"question_text", r.question_text},
                   {"primary",
                    {{"metric", r.primary.metric},
                     {"margin", exact(r.primary.margin)},
                     {"target", exact(r.primary.target)},
                     {"alpha", exact(r.primary.alpha)}}},
                   {"steps", r.steps},
                   {"seeds", r.seeds},
                   {"summary", summary(r.summary)},
                   {"verdicts", list(r.cells, cell)},
                   {"references", list(r.references, reference)},
                   {"certificate", optional(r.certificate, certificate)},
                   {"claims", list(r.claims, claim)},
                   {"provenance", rows(r.provenance)},
                   {"rerun", r.rerun}};
  for (std::size_t i = 0; i < r.cells.size(); ++i) {
    const std::optional<NoiseScale>& scale = r.cells[i].noise_scale;
    if (scale) document["verdicts"][i]["noise_scale"] = noise_scale_to_json(*scale);
  }
  if (!r.growth.empty()) document["growth"] = list(r.growth, growth_to_json);
  if (r.timing) document["timing"] = timing_to_json(*r.timing);
  if (r.detection) document["detection"] = detection(*r.detection);
  if (r.calibration) document["calibration"] = calibration_to_json(*r.calibration);
  seal(document);
  // Ranks' last lines and messages may hold any bytes; what is not UTF-8 is replaced rather than refused.
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
