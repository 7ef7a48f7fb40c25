// results.json, read.

#include <fmt/format.h>

#include "harness/base/json_text.h"
#include "harness/base/sealed_json.h"
#include "harness/results/results.h"
#include "harness/results/results_calibration.h"
#include "harness/results/results_fields.h"
#include "harness/results/results_growth.h"
#include "harness/results/results_learning.h"
#include "harness/results/results_timing.h"

namespace lockstep {
namespace {

using namespace results_fields;

std::string text(const Json& json, const char* key) { return json.at(key).get<std::string>(); }
int64_t integer(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_number_integer())
    throw std::runtime_error(fmt::format("{} is {}, not an integer", key, value.dump()));
  return value.get<int64_t>();
}
int small(const Json& json, const char* key) { return static_cast<int>(integer(json, key)); }
bool flag(const Json& json, const char* key) { return json.at(key).get<bool>(); }
int64_t read_integer(const Json& json) { return json.get<int64_t>(); }

std::vector<std::pair<std::string, std::string>> read_rows(const Json& json) {
  return read_list(json, [](const Json& row) { return std::pair(text(row, "key"), text(row, "value")); });
}

Divergence read_divergence(const Json& j) {
  Divergence d;
  d.step = integer(j, "step");
  d.phase = text(j, "phase");
  d.rank = small(j, "rank");
  d.where = text(j, "where");
  d.kind = text(j, "kind");
  d.expected = text(j, "expected");
  d.actual = text(j, "actual");
  d.sentence = text(j, "sentence");
  return d;
}

Cause read_cause(const Json& j) {
  return {text(j, "code"), read_number(j.at("confidence")), text(j, "evidence"), text(j, "remedy")};
}

GradientSignature read_signature(const Json& j) {
  GradientSignature g;
  g.group = text(j, "group");
  g.ratio = read_exact(j.at("ratio"));
  g.cosine = read_exact(j.at("cosine"));
  g.residual = read_exact(j.at("residual"));
  g.difference = read_exact(j.at("difference"));
  g.band = read_exact(j.at("band"));
  return g;
}

ForcedStep read_forced(const Json& j) {
  ForcedStep step;
  step.step = integer(j, "step");
  step.band_used = read_exact(j.at("band_used"));
  step.worst_tensor = text(j, "worst_tensor");
  step.groups = read_list(j.at("groups"), read_signature);
  return step;
}

Mechanism read_mechanism(const Json& j) {
  Mechanism m;
  m.verdict = read_verdict(j.at("verdict"));
  m.sentence = text(j, "sentence");
  m.band_used = read_exact(j.at("band_used"));
  m.band_measured = flag(j, "band_measured");
  m.compared_steps = integer(j, "compared_steps");
  m.forced = read_list(j.at("forced"), read_forced);
  return m;
}

MetricDifference read_metric_difference(const Json& j) {
  MetricDifference d;
  d.metric = text(j, "metric");
  d.reference_mean = read_exact(j.at("reference_mean"));
  d.cell_mean = read_exact(j.at("cell_mean"));
  d.mean = read_exact(j.at("mean"));
  d.sd = read_exact(j.at("sd"));
  d.interval = read_interval(j.at("interval"));
  const Json& higher = j.at("higher_is_better");
  d.has_direction = !higher.is_null();
  d.higher_is_better = higher.is_null() || higher.get<bool>();
  return d;
}

/// An outcome stands in two places: its words under `outcome`, its numbers under `statistics`.
Outcome read_outcome(const Json& words, const Json& numbers) {
  Outcome o;
  o.verdict = read_verdict(words.at("verdict"));
  o.sentence = text(words, "sentence");
  o.metric = text(words, "metric");
  o.others = read_list(words.at("others"), read_metric_difference);
  o.margin = read_exact(numbers.at("margin"));
  o.alpha = read_exact(numbers.at("alpha"));
  o.n = small(numbers, "n");
  o.primary = read_metric_difference(numbers.at("primary"));
  o.equivalence = read_interval(numbers.at("equivalence"));
  o.power = read_exact(numbers.at("power"));
  o.seeds_needed = small(numbers, "seeds_needed");
  o.sequential = read_optional(numbers.at("sequential"), sequential_from_json);
  for (const Json& pair : numbers.at("pairs")) {
    o.seeds.push_back(integer(pair, "seed"));
    o.differences.push_back(read_exact(pair.at("difference")));
  }
  read_learning(numbers, o);
  return o;
}

Certification read_certification(const Json& j) {
  Certification c;
  c.wanted = flag(j, "wanted");
  c.steps = integer(j, "steps");
  c.asked = integer(j, "asked");
  c.seed = integer(j, "seed");
  c.backend = text(j, "backend");
  c.divergence = read_optional(j.at("divergence"), read_divergence);
  return c;
}

Failure read_failure(const Json& j) {
  Failure f;
  f.run = text(j, "run");
  f.kind = text(j, "kind");
  f.rank = small(j, "rank");
  f.step = integer(j, "step");
  f.operation = text(j, "operation");
  f.message = text(j, "message");
  f.last_lines = read_list(j.at("last_lines"), [](const Json& line) { return line.get<std::string>(); });
  return f;
}

CurveBand read_curve(const Json& j) {
  CurveBand band;
  band.metric = text(j, "metric");
  band.steps = read_list(j.at("steps"), read_integer);
  band.median = read_list(j.at("median"), read_number);
  band.low = read_list(j.at("low"), read_number);
  band.high = read_list(j.at("high"), read_number);
  const std::size_t size = band.steps.size();
  if (band.median.size() != size || band.low.size() != size || band.high.size() != size) {
    throw std::runtime_error("the curve " + band.metric + " has lists of unequal length");
  }
  return band;
}

StepCosts read_step_costs(const Json& j) {
  return {read_number(j.at("energies")), read_number(j.at("bytes")), read_number(j.at("seconds"))};
}

CertificateRow read_certificate_row(const Json& j) {
  CertificateRow row;
  row.loss = text(j, "loss");
  row.world_size = small(j, "world_size");
  row.cases = small(j, "cases");
  row.certified = small(j, "certified");
  row.worst = read_exact(j.at("worst"));
  row.worst_cell = text(j, "worst_cell");
  row.worst_step = integer(j, "worst_step");
  row.worst_group = read_signature(j.at("worst_group"));
  row.costs = read_step_costs(j.at("costs"));
  row.time_to_local = read_number(j.at("time_to_local"));
  return row;
}

Certificate read_certificate(const Json& j) {
  return {read_number(j.at("exact")), read_list(j.at("steps"), read_integer),
          read_list(j.at("rows"), read_certificate_row)};
}

ClaimState read_claim_state(const Json& json) {
  const std::string name = json.get<std::string>();
  for (const ClaimState state : {ClaimState::holds, ClaimState::does_not_hold, ClaimState::undecided,
                                 ClaimState::not_testable, ClaimState::waiting}) {
    if (name == name_of(state)) return state;
  }
  throw std::runtime_error("unknown state of a claim \"" + name + "\"");
}

std::vector<std::string> read_texts(const Json& json) {
  return read_list(json, [](const Json& word) { return word.get<std::string>(); });
}

ConditionResult read_condition(const Json& j) {
  return {text(j, "text"),
          text(j, "figures"),
          read_claim_state(j.at("state")),
          read_exact(j.at("value")),
          read_interval(j.at("interval")),
          read_texts(j.at("cells")),
          read_texts(j.at("runs"))};
}

ClaimResult read_claim(const Json& j) {
  ClaimResult c;
  c.id = text(j, "id");
  c.told = text(j, "told");
  c.state = read_claim_state(j.at("state"));
  c.expected = read_optional(j.at("expected"), read_claim_state);
  c.as_expected = flag(j, "as_expected");
  c.reason = text(j, "reason");
  c.conditions = read_list(j.at("conditions"), read_condition);
  c.shows = read_texts(j.at("shows"));
  return c;
}

CellResult read_cell(const Json& j) {
  CellResult c;
  c.scenario = text(j, "scenario");
  c.run = text(j, "run");
  c.reference = text(j, "reference");
  c.reference_run = text(j, "reference_run");
  c.verdict = read_verdict(j.at("verdict"));
  c.expected = read_list(j.at("expected"), read_verdict);
  c.as_expected = flag(j, "as_expected");
  c.power_control = flag(j, "power_control");
  c.noise = flag(j, "noise");
  c.anchor = flag(j, "anchor");
  c.mechanism = read_optional(j.at("mechanism"), read_mechanism);
  if (c.mechanism) {
    c.mechanism->first_divergence = read_optional(j.at("first_divergence"), read_divergence);
  }
  const bool of_failure = !j.at("failure").is_null() && !j.at("cause").is_null();
  if (of_failure) c.cause = read_cause(j.at("cause"));
  if (c.mechanism && !of_failure) c.mechanism->cause = read_optional(j.at("cause"), read_cause);
  if (j.at("outcome").is_null() != j.at("statistics").is_null()) {
    throw std::runtime_error("the verdict of " + c.scenario +
                             " has an outcome without statistics, or the reverse");
  }
  if (!j.at("outcome").is_null()) c.outcome = read_outcome(j.at("outcome"), j.at("statistics"));
  c.certification = read_certification(j.at("certification"));
  c.failure = read_optional(j.at("failure"), read_failure);
  c.costs = read_optional(j.at("costs"), read_step_costs);
  c.rerun = text(j, "rerun");
  c.replay = text(j, "replay");
  c.settings = read_rows(j.at("settings"));
  c.config = read_rows(j.at("config"));
  c.curves = read_list(j.at("curves"), read_curve);
  if (j.contains("noise_scale")) c.noise_scale = noise_scale_from_json(j.at("noise_scale"));
  return c;
}

ReferenceResult read_reference(const Json& j) {
  ReferenceResult r;
  r.name = text(j, "name");
  for (const auto& [metric, mean] : j.at("metric_means").items()) r.metric_means[metric] = read_exact(mean);
  r.config = read_rows(j.at("config"));
  r.curves = read_list(j.at("curves"), read_curve);
  return r;
}

DetectionRate read_detection_rate(const Json& j) {
  const Json& asked = j.at("asked");
  return {text(j, "what"),
          integer(j, "hits"),
          integer(j, "of"),
          read_interval(j.at("interval")),
          asked.is_null() ? -1 : asked.get<double>(),
          flag(j, "at_most"),
          flag(j, "enough")};
}

DetectionRow read_detection_row(const Json& j) {
  DetectionRow r;
  r.mutant = text(j, "mutant");
  r.report = text(j, "report");
  r.trials = small(j, "trials");
  r.caught = small(j, "caught");
  r.exact_step = small(j, "exact_step");
  r.exact_place = small(j, "exact_place");
  r.exact = small(j, "exact");
  r.right_cause = small(j, "right_cause");
  r.wrong_cause = small(j, "wrong_cause");
  r.by_loss_curve = small(j, "by_loss_curve");
  r.first_found = j.at("first_found").get<std::vector<int>>();
  return r;
}

Detection read_detection(const Json& j) {
  Detection d;
  d.passed = flag(j, "passed");
  d.loss_tolerance = read_number(j.at("loss_tolerance"));
  d.clean = integer(j, "clean");
  d.false_alarms = integer(j, "false_alarms");
  d.rates = read_list(j.at("rates"), read_detection_rate);
  d.detectors = j.at("detectors").get<std::vector<std::string>>();
  d.rows = read_list(j.at("mutants"), read_detection_row);
  for (const DetectionRow& row : d.rows) {
    if (row.first_found.size() != d.detectors.size())
      throw std::runtime_error("the row of " + row.mutant + " has not one count a detector");
  }
  d.misses = read_list(j.at("misses"), [](const Json& m) {
    return DetectionMiss{text(m, "cell"), text(m, "wrong"), text(m, "planted"), text(m, "said"),
                         text(m, "rerun")};
  });
  return d;
}

Summary read_summary(const Json& j) {
  Summary s;
  s.sentence = text(j, "sentence");
  s.exit_code = small(j, "exit_code");
  s.can_tell = flag(j, "can_tell");
  s.margin_refused = flag(j, "margin_refused");
  s.margin_text = text(j, "margin_text");
  s.cells = small(j, "cells");
  s.as_expected = small(j, "as_expected");
  s.failed = small(j, "failed");
  s.undecided = small(j, "undecided");
  s.power_controls = small(j, "power_controls");
  s.power_controls_caught = small(j, "power_controls_caught");
  s.runs = small(j, "runs");
  s.runs_reused = small(j, "runs_reused");
  return s;
}

Results read_document(const Json& j) {
  const int64_t version = integer(j, "schema_version");
  if (version != kResultsSchemaVersion) {
    throw std::runtime_error(
        fmt::format("schema version {} is not known to this build, which reads version {}", version,
                    kResultsSchemaVersion));
  }
  if (const std::string problem = seal_problem(j); !problem.empty()) {
    throw std::runtime_error(problem + "; `lockstep run` with its config writes it anew");
  }
  Results r;
  r.name = text(j, "name");
  r.config_file = text(j, "config_file");
  r.question = read_question(j.at("question"));
  r.question_text = text(j, "question_text");
  const Json& primary = j.at("primary");
  r.primary = {text(primary, "metric"), read_exact(primary.at("margin")), read_exact(primary.at("alpha")),
               read_exact(primary.at("target"))};
  r.steps = integer(j, "steps");
  r.seeds = read_list(j.at("seeds"), read_integer);
  r.summary = read_summary(j.at("summary"));
  r.cells = read_list(j.at("verdicts"), read_cell);
  r.references = read_list(j.at("references"), read_reference);
  r.certificate = read_optional(j.at("certificate"), read_certificate);
  r.claims = read_list(j.at("claims"), read_claim);
  r.provenance = read_rows(j.at("provenance"));
  r.rerun = text(j, "rerun");
  if (j.contains("growth")) r.growth = read_list(j.at("growth"), growth_from_json);
  if (j.contains("timing")) r.timing = timing_from_json(j.at("timing"));
  if (j.contains("detection")) r.detection = read_detection(j.at("detection"));
  if (j.contains("calibration")) r.calibration = calibration_from_json(j.at("calibration"));
  return r;
}

}  // namespace

Results results_from_json(const std::string& text, const std::string& file_name) {
  try {
    JsonProblem problem;
    const Json document = parse_ordered_json(text, &problem);
    if (!problem.message.empty()) throw std::runtime_error(problem.text());
    return read_document(document);
  } catch (const Json::exception& error) {
    throw std::runtime_error(file_name + ": " + error.what());
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(file_name + ": " + error.what());
  }
}

}  // namespace lockstep
