#include "reports/junit.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/verdict/plan/question.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/suite.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {
namespace {

bool is_error(const CellResult& cell) {
  return !is_as_expected(cell) && (cell.failure || cell.verdict == VerdictKind::failed);
}

bool is_failure(const CellResult& cell) { return !is_as_expected(cell) && !is_error(cell); }

void property(Markup& out, std::string_view name, std::string_view value) {
  out.empty("property", {{"name", std::string(name)}, {"value", std::string(value)}});
}

std::string exact(double value) { return fmt::format("{}", value); }

void write_interval(Markup& out, const std::string& name, const Interval& interval) {
  property(out, name + ".level", fmt::format("{:.6g}", interval.level));
  property(out, name + ".low", exact(interval.low));
  property(out, name + ".high", exact(interval.high));
}

void write_figures(Markup& out, const CellResult& cell) {
  out.open("properties");
  property(out, "verdict", style_of(cell.verdict).words);
  property(out, "expected", expected_words(cell));
  property(out, "power_control", cell.power_control ? "true" : "false");
  property(out, "reference", cell.reference);
  for (const auto& [axis, value] : cell.settings) property(out, "setting." + axis, value);
  if (cell.mechanism) {
    const Mechanism& m = *cell.mechanism;
    property(out, "mechanism.verdict", style_of(m.verdict).words);
    property(out, "mechanism.band_used", exact(m.band_used));
    property(out, "mechanism.band", m.band_measured ? "measured" : "estimated, not measured");
    property(out, "mechanism.compared_steps", std::to_string(m.compared_steps));
    if (m.first_divergence)
      property(out, "mechanism.first_divergence", divergence_words(*m.first_divergence));
    if (m.cause) property(out, "mechanism.cause", m.cause->code);
  }
  if (cell.outcome) {
    const Outcome& o = *cell.outcome;
    property(out, "outcome.verdict", style_of(o.verdict).words);
    property(out, "outcome.metric", o.metric);
    property(out, "outcome.margin", exact(o.margin));
    property(out, "outcome.n", std::to_string(o.n));
    property(out, "outcome.difference", exact(o.primary.mean));
    property(out, "outcome.sd", exact(o.primary.sd));
    write_interval(out, "outcome.interval", o.primary.interval);
    write_interval(out, "outcome.equivalence", o.equivalence);
    property(out, "outcome.power", exact(o.power));
    if (o.seeds_needed > 0) property(out, "outcome.seeds_needed", std::to_string(o.seeds_needed));
  }
  if (cell.certification.wanted) {
    property(out, "certified_steps",
             fmt::format("{} of {}", cell.certification.steps, cell.certification.asked));
    property(out, "certified_by", fmt::format("{} on {}", cell.certification.certify, clean_line(cell.certification.backend)));
    if (cell.certification.certify == kByBand) property(out, "certified_band_used", exact(cell.certification.band_used));
  }
  property(out, "rerun", cell.rerun);
  out.close();
}

std::string message_of(const CellResult& cell) {
  std::string text = name_words(cell.scenario);
  if (cell.failure) return text + ": " + failure_words(*cell.failure);
  text += fmt::format(" is {}, ", style_of(cell.verdict).words);
  text += is_missed_control(cell) ? "but a power control must be found to differ: this matrix cannot tell"
                                  : "expected " + expected_words(cell);
  const Divergence* first = cell.certification.divergence ? &*cell.certification.divergence
                            : cell.mechanism && cell.mechanism->first_divergence
                                ? &*cell.mechanism->first_divergence
                                : nullptr;
  if (first) text += "; first differs at " + place_words(*first);
  return text;
}

std::string body_of(const CellResult& cell) {
  std::string text;
  const auto line = [&text](const std::string& more) {
    if (!more.empty()) text += more + "\n";
  };
  if (cell.certification.divergence)
    line("Real ranks compared with emulated ranks: " + divergence_words(*cell.certification.divergence));
  if (cell.mechanism && cell.mechanism->first_divergence) {
    const Divergence& d = *cell.mechanism->first_divergence;
    line("First divergence: " + place_words(d) + (d.where.empty() ? "" : ", " + clean_line(d.where)));
    if (!d.expected.empty() || !d.actual.empty())
      line("Expected " + clean_line(d.expected) + ", actual " + clean_line(d.actual));
    line(clean_line(d.sentence));
  }
  if (cell.mechanism && cell.mechanism->cause) {
    const Cause& cause = *cell.mechanism->cause;
    line("Cause: " + clean_line(cause.code) + ". " + clean_line(cause.remedy));
    if (!cause.evidence.empty()) line("Evidence: " + clean_line(cause.evidence));
  }
  if (cell.outcome) line(clean_line(cell.outcome->sentence));
  if (!cell.failed_saves.empty()) line("checkpoints: " + clean_line(cell.failed_saves));
  if (cell.failure) {
    line("Run " + clean_line(cell.failure->run));
    for (const std::string& last : cell.failure->last_lines) line("  " + short_line(last, 500));
  }
  line("Run it again: " + clean_line(cell.rerun));
  return text;
}

void write_case(Markup& out, const Results& results, const CellResult& cell) {
  out.open("testcase",
           {{"classname", "lockstep." + clean_line(results.name)}, {"name", clean_line(cell.scenario)}});
  write_figures(out, cell);
  if (is_error(cell)) {
    const std::string kind = cell.failure ? std::string(to_word(cell.failure->kind)) : "failed";
    out.open("error", {{"type", kind}, {"message", message_of(cell)}}).text(body_of(cell)).close();
  } else if (is_failure(cell)) {
    out.open("failure", {{"type", style_of(cell.verdict).words}, {"message", message_of(cell)}})
        .text(body_of(cell))
        .close();
  }
  out.close();
}

}  // namespace

std::string junit_report(const Results& results) {
  if (results.suite) return suite_junit(results);
  const auto failures = std::to_string(std::count_if(results.cells.begin(), results.cells.end(), is_failure));
  const auto errors = std::to_string(std::count_if(results.cells.begin(), results.cells.end(), is_error));
  const std::string tests = std::to_string(results.cells.size());
  Markup out;
  out.raw("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
  out.open("testsuites",
           {{"name", "lockstep"}, {"tests", tests}, {"failures", failures}, {"errors", errors}});
  out.open("testsuite", {{"name", clean_line(results.name)},
                         {"tests", tests},
                         {"failures", failures},
                         {"errors", errors},
                         {"skipped", "0"}});
  out.open("properties");
  property(out, "config", results.config_file);
  property(out, "question", question_words(results));
  property(out, "steps", std::to_string(results.steps));
  property(out, "seeds", seeds_words(results.seeds));
  property(out, "alpha", exact(results.primary.alpha));
  if (question_named(results.question).by_outcome)
    property(out, "margin.declared", declaration_words(results));
  property(out, "status", status_of(results).word);
  property(out, "can_tell", results.summary.can_tell ? "true" : "false");
  property(out, "exit_code", std::to_string(results.summary.exit_code));
  property(out, "rerun", results.rerun);
  out.close();
  for (const CellResult& cell : results.cells) write_case(out, results, cell);
  if (!results.summary.sentence.empty()) out.element("system-out", {}, results.summary.sentence);
  return out.take() + "\n";
}

}  // namespace lockstep
