#include "reports/format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <stdexcept>

#include "harness/answer/results/words.h"
#include "harness/plan/matrix/matrix.h"
#include "reports/check.h"
#include "reports/headline.h"
#include "reports/html/parts.h"
#include "reports/section.h"
#include "reports/plots/chart.h"
#include "reports/suite.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {

void open_page(Markup& out, const std::string& title) {
  out.raw("<!DOCTYPE html>\n");
  out.open("html", {{"lang", "en"}}).open("head").empty("meta", {{"charset", "utf-8"}});
  // Nothing may be loaded, and only our script run.
  const std::string allowed = fmt::format("'sha256-{}'", kScriptHash);
  out.empty("meta", {{"http-equiv", "Content-Security-Policy"},
                     {"content", "default-src 'none'; style-src 'unsafe-inline'; script-src " + allowed}});
  out.empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  out.empty("meta", {{"name", "color-scheme"}, {"content", "light dark"}});
  out.element("title", {}, clean_line(title));
  out.open("style").raw(html_style()).close();
  out.open("script").raw(html_script()).close().close();
}

namespace {

void write_verdict_box(Markup& out, const Results& results) {
  const Status status = status_of(results);
  out.open("div", {{"class", std::string("verdict ") + status.css}, {"role", "status"}});
  out.element("span", {{"class", "status"}}, std::string(status.symbol) + " " + status.word);
  out.element("span", {{"class", "detail"}}, status.detail);
  const std::vector<std::string> sentences = headline_of(results);
  if (!sentences.empty() && sentences.front() != status.detail) {
    out.open("ul", {{"class", "first"}});
    for (const std::string& sentence : sentences) out.element("li", {}, sentence);
    out.close();
  }
  out.close();
}

/// Of a cell that is not as expected: what else differs, its last lines, the command that repeats it.
Section unexpected_section(const Results& results) {
  constexpr int kLongestLine = 300;
  Section section{"unexpected", "What is not as expected", "", {}};
  for (const CellResult& cell : results.cells) {
    if (is_as_expected(cell) || results.detection) continue;
    std::vector<std::string> found, last;
    if (cell.mechanism && !cell.failure && !cell.certification.divergence) {
      const CheckDocument document = document_of(*cell.mechanism);
      found = finding_lines(document);
      const Cause* cause = cause_of(cell);  // The rows and answers above say it.
      std::erase_if(found, [&](const std::string& line) {
        return line.starts_with("fix   ") || line.starts_with("to decide: ") || (cause && line == cause->evidence);
      });
    }
    if (cell.failure)
      for (const std::string& line : cell.failure->last_lines) last.push_back(short_line(line, kLongestLine));
    const std::string name = fmt::format("{} {}", style_of(cell.verdict).symbol, name_words(cell.scenario));
    if (!found.empty()) section.parts.insert(section.parts.end(), {heading(name), list(std::move(found))});
    if (!last.empty())
      section.parts.push_back(fold("Last lines of " + name, {code(fmt::format("{}", fmt::join(last, "\n")))}));
    if (!cell.rerun.empty()) section.parts.push_back(fold("Run it again: " + name, {code(clean_line(cell.rerun))}));
  }
  return section;
}

/// What every format shows, in this order: the rows, the questions, what they rest on.
std::vector<Section> tree_of(const Page& page, const Results& all) {
  const Results& results = page.results;
  std::vector<Section> tree;
  const auto show = [&tree](Section section) { tree.push_back(std::move(section)); };
  const auto on_page = [&tree](Section section) {
    section.page = true;
    tree.push_back(std::move(section));
  };
  if (results.suite) {
    tree = suite_sections(*results.suite);
    tree.insert(tree.begin() + 1, answers_section(results));
    return tree;
  }
  const bool by_outcome = question_named(results.question).by_outcome,
             trials = results.detection || results.certificate;
  if (results.detection) show(detection_section(*results.detection));
  if (results.certificate) show(certificate_section(*results.certificate));
  on_page(grid_section(page));
  const bool has_outcome =
      std::ranges::any_of(results.cells, [](const CellResult& cell) { return cell.outcome.has_value(); });
  if (!results.cells.empty() && !by_outcome && !trials) show(band_section(page));
  if (!results.cells.empty() && !trials && (by_outcome || has_outcome)) show(outcome_section(page));
  show(answers_section(all));
  if (results.cells.empty() || results.detection) {
    if (results.timing) show(costs_section(*results.timing));
    return tree;
  }
  for (const auto& make : {mechanism_section, differences_section, drift_section, exact_section, curves_section})
    on_page(make(page));
  show(growth_section(page));
  show(noise_section(page));
  if (results.timing) show(costs_section(*results.timing));
  for (const auto& make : {power_section, looks_section, target_section}) on_page(make(page));
  for (Section& section : rewards_sections(page)) on_page(std::move(section));
  for (const auto& make : {gradients_section, certification_section, metrics_section, failures_section})
    on_page(make(page));
  return tree;
}

}  // namespace

Note verdict_note(const CellResult& cell, VerdictKind kind) {
  const VerdictStyle& style = style_of(kind);
  const bool caught = cell.power_control && !is_missed_control(cell) && kind == VerdictKind::divergent;
  return {std::string(style.symbol) + " " + style.words, std::string("t-") + (caught ? "ctl" : style.css)};
}

std::string html_report(const Results& results) {
  const Results telling = with_telling_cells(results);
  const Page page{telling, cell_anchors(telling)};
  Markup out;
  open_page(out, "lockstep: " + results.name + ": " + std::string(status_of(results).word));
  out.open("body").open("main").open("header");
  out.open("h1").text(results.name);
  if (!results.question_text.empty()) out.element("span", {}, " · " + clean_line(results.question_text));
  out.close();
  write_verdict_box(out, results);
  out.close();
  for (const Section& section : tree_of(page, results)) write_section(out, section);
  write_section(out, provenance_section(page));
  write_section(out, commands_section(page));
  out.element("footer", {},
              fmt::format("Made by lockstep from results.json beside this file, schema version {}. "
                          "The page loads nothing.",
                          results.schema_version));
  return out.take() + "\n";
}

namespace {

bool is_error(const CellResult& cell) {
  return !is_as_expected(cell) && (cell.failure || cell.verdict == VerdictKind::failed);
}

bool is_failure(const CellResult& cell) { return !is_as_expected(cell) && !is_error(cell); }

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
  if (cell.certification.divergence) return text + "; first differs at " + place_words(*cell.certification.divergence);
  const bool differs = cell.mechanism && cell.mechanism->first_divergence;
  return differs ? text + "; " + clean_line(document_of(*cell.mechanism).headline) : text;
}

std::string body_of(const CellResult& cell) {
  std::string text;
  const auto line = [&text](const std::string& more) {
    if (!more.empty()) text += more + "\n";
  };
  if (cell.certification.divergence)
    line("Real ranks compared with emulated ranks: " + divergence_words(*cell.certification.divergence));
  if (cell.mechanism) {
    const CheckDocument found = document_of(*cell.mechanism);
    line(clean_line(found.headline));
    for (const std::string& each : finding_lines(found)) line(each);
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
  const auto failures = std::ranges::count_if(results.cells, is_failure);
  const auto errors = std::ranges::count_if(results.cells, is_error);
  Markup out = junit_begin(results, results.cells.size(), failures, errors);
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

namespace {

/// Kept free for what closes the text.
constexpr std::size_t kReserve = 4096;

}  // namespace

std::string markdown_summary(const Results& results) {
  const Status status = status_of(results);
  const std::vector<std::string> sentences = headline_of(results);
  std::string out =
      fmt::format("## {} {}: {}\n\n", status.symbol, status.word, escape_markdown(name_words(results.name)));
  if (!status.detail.empty()) out += escape_markdown(short_line(status.detail, 4000)) + "\n\n";
  out += escape_markdown(question_words(results)) + "\n\n";
  for (const std::string& sentence : sentences) out += "- **" + escape_markdown(short_line(sentence, 4000)) + "**\n";
  const Page page{results, cell_anchors(results)};
  std::vector<Section> tree = tree_of(page, results);
  tree.push_back(unexpected_section(results));
  bool whole = true;
  for (const Section& section : tree) {
    std::istringstream lines(markdown_of(section));
    for (std::string line; whole && std::getline(lines, line); out += line + "\n")
      whole = out.size() + line.size() + kReserve <= kLargestMarkdownBytes;
  }
  if (!whole) out += "\nCut at 1 MiB: the rest is in report.html and results.json.\n";
  if (!results.rerun.empty()) out += "\nThe whole matrix again:\n\n" + fenced(short_line(results.rerun, 1000));
  return out;
}

std::string terminal_table(const Results& results, bool colour, int width) {
  constexpr int kUnlimited = 1 << 20;
  const int columns = width > 0 ? std::max(width, kNarrowestWidth) : kUnlimited;
  if (width > 0) width = columns;
  const auto paint = [colour](std::string_view text, std::string_view css) { return painted(text, css, colour); };
  const Status status = status_of(results);
  std::string out = paint(shorten(clean_line(results.name) + " · " + question_words(results), columns), "bold") + "\n";
  for (const std::string& sentence : headline_of(results))
    if (sentence != status.detail) out += hanging(ascii_minus(sentence), width > 0 ? std::min(columns, 118) : columns);
  const Page page{results, cell_anchors(results)};
  std::vector<Section> tree = tree_of(page, results);
  tree.push_back(unexpected_section(results));
  for (const Section& section : tree) out += text_of(section, colour, width);
  if (!status.detail.empty()) {
    const std::string detail = wrapped(status.word + ": " + clean_line(status.detail), columns - 2);
    out += paint(std::string(status.symbol) + " " + detail.substr(0, detail.size() - 1), status.css) + "\n";
  }
  if (!results.rerun.empty()) out += shorten("again: " + clean_line(results.rerun), columns) + "\n";
  return out;
}

namespace {

struct Renderer {
  ReportFormat format;
  std::string (*render)(const Results&);
};

constexpr Renderer kRenderers[] = {
    {{"html", "report.html", "one offline page with drawings"}, html_report},
    {{"md", "summary.md", "GitHub-flavoured Markdown, at most 1 MiB"}, markdown_summary},
    {{"json", "results.json", "everything, schema-versioned"}, results_to_json},
    {{"junit", "junit.xml", "JUnit XML, a test case for each cell"}, junit_report},
    {{"text", "", "the table of the terminal, without colour"},
     [](const Results& r) { return terminal_table(r, false, 0); }},
};

}  // namespace

std::span<const ReportFormat> report_formats() {
  static const auto formats = [] {
    std::array<ReportFormat, std::size(kRenderers)> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = kRenderers[i].format;
    return all;
  }();
  return formats;
}

std::string render(const Results& results, const std::string& format) {
  std::string known;
  for (const Renderer& renderer : kRenderers) {
    if (renderer.format.name != format) {
      known += (known.empty() ? "" : ", ") + std::string(renderer.format.name);
      continue;
    }
    // Whatever text was shown without escaping, no control character and no mark that reorders text leaves here; JSON is data.
    const std::string text = renderer.render(results);
    return renderer.render == results_to_json ? text : clean_text(text);
  }
  throw std::invalid_argument("unknown report format '" + clean_line(format) + "'; known are " + known);
}

}  // namespace lockstep
