#include "reports/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/verdict/plan/question.h"
#include "reports/headline.h"
#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/plots/chart.h"
#include "reports/suite.h"
#include "reports/text.h"

namespace lockstep {
namespace {

void write_head(Markup& out, const Results& results) {
  out.raw("<!DOCTYPE html>\n");
  out.open("html", {{"lang", "en"}}).open("head").empty("meta", {{"charset", "utf-8"}});
  // Nothing may be loaded or run, whatever a name or a log line holds.
  out.empty("meta", {{"http-equiv", "Content-Security-Policy"},
                     {"content", "default-src 'none'; style-src 'unsafe-inline'"}});
  out.empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  out.empty("meta", {{"name", "color-scheme"}, {"content", "light dark"}});
  out.element("title", {}, "lockstep: " + clean_line(results.name) + ": " + status_of(results).word);
  out.open("style").raw(html_style()).close().close();
}

void write_verdict_box(Markup& out, const Results& results) {
  constexpr std::size_t kLongSentence = 190;
  const Status status = status_of(results);
  out.open("div", {{"class", std::string("verdict ") + status.css}, {"role", "status"}});
  out.element("span", {{"class", "status"}}, std::string(status.symbol) + " " + status.word);
  out.element("span", {{"class", "detail"}}, status.detail);
  if (const std::optional<Headline> headline = headline_of(results)) {
    write_answers(out, *headline);
    out.close();
    return;
  }
  // Documents of earlier builds hold the text alone.
  std::vector<std::string> sentences = results.summary.sentences;
  if (sentences.empty()) sentences = {results.summary.sentence};
  const std::string first = clean_line(sentences.front());
  if (!first.empty())
    out.element("p", {{"class", first.size() > kLongSentence ? "first long" : "first"}}, first);
  std::string rest;
  for (std::size_t i = 1; i < sentences.size(); ++i) rest += (i > 1 ? " " : "") + clean_line(sentences[i]);
  if (!rest.empty()) out.element("p", {{"class", "rest"}}, rest);
  out.close();
}

void fact(Markup& out, std::string_view term, std::string_view value) {
  if (value.empty()) return;
  out.open("div").element("dt", {}, term).element("dd", {}, value).close();
}

void write_suite_facts(Markup& out, const Results& results) {
  const SuiteResult& suite = *results.suite;
  out.open("dl", {{"class", "facts"}});
  fact(out, "tested", suite.subject);
  fact(out, "trials", std::to_string(suite.trials));
  fact(out, "cases", std::to_string(suite.cases));
  fact(out, "faults", std::to_string(suite.faults));
  fact(out, "undecided", std::to_string(suite.undecided));
  for (const auto& [what, figure] : suite.facts) fact(out, clean_line(what), clean_line(figure));
  fact(out, "exit code", std::to_string(results.summary.exit_code));
  out.close();
}

void write_facts(Markup& out, const Results& results) {
  if (results.suite) return write_suite_facts(out, results);
  const Summary& s = results.summary;
  const bool by_outcome = question_named(results.question).by_outcome;
  out.open("dl", {{"class", "facts"}});
  if (const int unstated = results.detection || results.certificate ? 0 : unstated_cells(results); unstated < s.cells)
    fact(out, results.detection ? "correct in all" : "as expected",
         fmt::format("{} of {}", s.as_expected - unstated, counted(s.cells - unstated, results.detection ? "trial" : "cell")));
  if (s.power_controls > 0) {
    fact(out, "power controls", fmt::format("{} of {} found to differ", s.power_controls_caught, s.power_controls));
  }
  if (by_outcome) {
    fact(out, "margin",
         fmt::format("± {:g} of {}, {}", results.primary.margin, metric_words(results.primary.metric),
                     declaration_words(results)));
    fact(out, "α", fmt::format("{:g}", results.primary.alpha));
  }
  fact(out, by_outcome ? "paired seeds" : "seeds",
       results.seeds.empty() ? "none"
                             : fmt::format("{} ({})", results.seeds.size(), seeds_words(results.seeds)));
  fact(out, "steps", std::to_string(results.steps));
  const Certified certified = certified_of(results);
  fact(out, certified.how.empty() ? "certified" : certified.how, certified.what);
  fact(out, "runs",
       fmt::format("{}{}", s.runs, s.runs_reused > 0 ? fmt::format(", {} reused", s.runs_reused) : ""));
  fact(out, "exit code", std::to_string(s.exit_code));
  out.close();
}

void write_outcome_plot(Markup& out, const Page& page) {
  const Results& results = page.results;
  open_section(
      out, "outcome", "Do the cells reach the same metric?",
      fmt::format(
          "Difference of {} to the reference after {}, cell minus reference, paired by seed: both runs of a "
          "pair share data, order and initial weights.",
          metric_words(results.primary.metric), counted(results.steps, "step")));
  out.raw(forest_plot(results)).close();
}

void write_band_plot(Markup& out, const Page& page) {
  const auto has_twins = [](const CellResult& cell) { return cell.mechanism && cell.mechanism->twins; };
  if (std::ranges::any_of(page.results.cells, has_twins)) {
    open_section(out, "band", "Are the gradients the same, up to rounding?",
                 "Both runs compute from the reference's weights and batch, natively and in float64. Rings: the difference in float64, "
                 "as a share of its tolerance (1e-12 of the summed terms). Dots: rounding, the distance of a cell from its own "
                 "float64 result, as a share of its tolerance (derived from the reference's own rounding). 1 is the limit of both; "
                 "pale dots are single forced steps.");
  } else {
    open_section(out, "band", "How much of the rounding tolerance was used?",
                 "Gradients from the reference's weights and batch. The tolerance is what summing in another order "
                 "changes, times the declared factor; 1 is its limit. Pale dots are single forced steps.");
  }
  out.raw(band_plot(page.results)).close();
}

/// Where each cell has a panel of its own, all metrics but the primary one are folded.
void write_curves(Markup& out, const Page& page) {
  constexpr std::size_t kMany = 8;
  std::vector<std::pair<std::string, std::string>> panels;
  bool flags = false;
  for (const std::string& metric : curve_metrics(page.results)) {
    if (std::string panel = curve_panels(page.results, metric); !panel.empty())
      panels.emplace_back(metric, std::move(panel));
  }
  for (const CellResult& cell : page.results.cells) {
    flags = flags || (cell.mechanism && cell.mechanism->verdict == VerdictKind::divergent &&
                      cell.mechanism->first_divergence);
  }
  if (panels.empty()) return;
  open_section(out, "curves", "Training curves",
               flags ? "A dot under the axis, in the cell's colour, marks the first step at which the cell differs from its reference."
                     : "");
  const bool many = page.results.cells.size() > kMany;
  if (!many) out.open("div", {{"class", "two"}});
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const bool folded = many && i > 0;
    if (folded) out.open("details").element("summary", {}, metric_words(panels[i].first));
    if (many) out.open("div", {{"class", "two"}});
    out.raw(panels[i].second);
    if (many) out.close();
    if (folded) out.close();
  }
  if (!many) out.close();
  out.close();
}

}  // namespace

void open_section(Markup& out, std::string_view id, std::string_view heading, std::string_view why) {
  out.open("section", {{"id", std::string(id)}}).element("h2", {}, heading);
  if (!why.empty()) out.element("p", {{"class", "why"}}, why);
}

void open_table(Markup& out, std::string_view css, const std::vector<Column>& heads) {
  std::string label = "Table";
  for (const Column& column : heads) label += (&column == heads.data() ? ": " : ", ") + column.head;
  open_scroll(out, label);
  out.open("table", {{"class", std::string(css)}}).open("thead").open("tr");
  for (const Column& column : heads) {
    if (column.numbers)
      out.element("th", {{"scope", "col"}, {"class", "n"}}, column.head);
    else
      out.element("th", {{"scope", "col"}}, column.head);
  }
  out.close().close().open("tbody");
}

void close_table(Markup& out) { out.close().close().close(); }

void write_verdict(Markup& out, const CellResult& cell, VerdictKind kind) {
  const VerdictStyle& style = style_of(kind);
  const bool caught = cell.power_control && !is_missed_control(cell) && kind == VerdictKind::divergent;
  out.element("b", {{"class", std::string("t-") + (caught ? "ctl" : style.css)}},
              std::string(style.symbol) + " " + style.words);
}

std::string html_report(const Results& results) {
  const Results telling = with_telling_cells(results);
  const Page page{telling, cell_anchors(telling)};
  Markup out;
  write_head(out, results);
  out.open("body").open("main").open("header");
  out.open("h1").text(results.name);
  if (!results.question_text.empty()) out.element("span", {}, " · " + clean_line(results.question_text));
  out.close();
  write_verdict_box(out, results);
  write_facts(out, results);
  out.close();
  const bool has_outcome = std::any_of(results.cells.begin(), results.cells.end(),
                                       [](const auto& c) { return c.outcome.has_value(); });
  if (results.suite) {
    write_suite(out, *results.suite);
  } else if (results.detection) {
    // A thousand trials are told in sum; those that went wrong are in its list.
    write_detection(out, page);
  } else if (!results.cells.empty()) {
    const QuestionPlan& asked = question_named(results.question);
    if (!asked.by_outcome && !results.certificate) write_band_plot(out, page);
    write_certificate(out, page);
    write_grid(out, page);
    if (asked.by_outcome || has_outcome) write_outcome_plot(out, page);
    write_differences(out, page);
    write_drift(out, page);
    write_exact(out, page);
    write_curves(out, page);
    write_growth(out, page);
    write_noise_scale(out, page);
    write_costs(out, page);
    write_power(out, page);
    write_interim_analyses(out, page);
    write_targets(out, page);
    write_mechanism(out, page);
    write_rewards(out, page);
    write_signatures(out, page);
    write_certification(out, page);
    write_metrics(out, page);
    write_failures(out, page);
  }
  write_provenance(out, page);
  write_commands(out, page);
  out.element("footer", {},
              fmt::format("Made by lockstep from results.json beside this file, schema version {}. "
                          "The page loads nothing and runs no script.",
                          results.schema_version));
  return out.take() + "\n";
}

}  // namespace lockstep
