#include "reports/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
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
  // Nothing may be loaded or run, whatever a name or a log line holds.
  out.empty("meta", {{"http-equiv", "Content-Security-Policy"},
                     {"content", "default-src 'none'; style-src 'unsafe-inline'"}});
  out.empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  out.empty("meta", {{"name", "color-scheme"}, {"content", "light dark"}});
  out.element("title", {}, clean_line(title));
  out.open("style").raw(html_style()).close().close();
}

namespace {

void write_verdict_box(Markup& out, const Results& results) {
  constexpr std::size_t kLongSentence = 190;
  const Status status = status_of(results);
  out.open("div", {{"class", std::string("verdict ") + status.css}, {"role", "status"}});
  out.element("span", {{"class", "status"}}, std::string(status.symbol) + " " + status.word);
  if (const std::optional<Headline> headline = headline_of(results)) {
    out.element("span", {{"class", "detail"}}, status.detail).open("ul", {{"class", "first list"}});
    for (const std::string& sentence : headline->sentences) out.element("li", {}, sentence);
    out.close().close();
    return;
  }
  // Documents of earlier builds hold the text alone.
  std::vector<std::string> sentences = results.summary.sentences;
  if (sentences.empty()) sentences = {results.summary.sentence};
  // A headline has two lines at most.
  const bool folds = sentences.front().size() > kLongSentence && !results.suite &&
                     !question_named(results.question).by_outcome;
  if (folds) sentences.insert(sentences.begin(), status.detail);
  if (!folds) out.element("span", {{"class", "detail"}}, status.detail);
  const std::string first = clean_line(sentences.front());
  if (!first.empty()) out.element("p", {{"class", first.size() > kLongSentence ? "first long" : "first"}}, first);
  std::string rest;
  for (std::size_t i = 1; i < sentences.size(); ++i) rest += (i > 1 ? " " : "") + clean_line(sentences[i]);
  if (folds) write_part(out, fold("In sentences", {prose(rest)}));
  if (!folds && !rest.empty()) out.element("p", {{"class", "rest"}}, rest);
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
  write_facts(out, results);
  out.close();
  const bool has_outcome = std::any_of(results.cells.begin(), results.cells.end(),
                                       [](const auto& c) { return c.outcome.has_value(); });
  if (results.suite) {
    for (const Section& section : suite_sections(*results.suite, false)) write_section(out, section);
  } else if (results.detection) {
    // A thousand trials are told in sum; those that went wrong are in its list.
    write_section(out, detection_section(*results.detection));
  } else if (!results.cells.empty()) {
    const QuestionPlan& asked = question_named(results.question);
    const auto show = [&out](const Section& section) { write_section(out, section); };
    if (!asked.by_outcome && !results.certificate) show(band_section(page));
    if (results.certificate) show(certificate_section(*results.certificate));
    if (!asked.by_outcome && !results.certificate) show(mechanism_section(page));
    show(grid_section(page));
    if (const std::optional<Headline> headline = headline_of(results)) show(answers_section(*headline));
    if (asked.by_outcome || has_outcome) show(outcome_section(page));
    show(differences_section(page));
    show(drift_section(page));
    show(exact_section(page));
    show(curves_section(page));
    show(growth_section(page));
    show(noise_section(page));
    if (results.timing) show(costs_section(*results.timing));
    for (const auto& make : {power_section, looks_section, target_section}) show(make(page));
    if (asked.by_outcome || results.certificate) show(mechanism_section(page));
    for (const Section& section : rewards_sections(page)) show(section);
    for (const auto& make : {gradients_section, certification_section, metrics_section, failures_section})
      show(make(page));
  }
  write_section(out, provenance_section(page));
  write_section(out, commands_section(page));
  out.element("footer", {},
              fmt::format("Made by lockstep from results.json beside this file, schema version {}. "
                          "The page loads nothing and runs no script.",
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

constexpr int kLongestRowName = 120, kLongestNote = 400, kLongestDetail = 4000, kLongestLine = 300;
/// Kept free for what closes the text.
constexpr std::size_t kReserve = 4096;

/// Appends whole pieces as long as there is room.
class Budget {
 public:
  bool add(const std::string& piece) {
    if (full_ || text_.size() + piece.size() + kReserve > kLargestMarkdownBytes) {
      full_ = true;
      return false;
    }
    text_ += text_.ends_with("\n\n") && piece.starts_with('\n') ? piece.substr(1) : piece;
    return true;
  }
  bool full() const { return full_; }
  std::string take(const std::string& end) { return std::move(text_) + end; }

 private:
  std::string text_;
  bool full_ = false;
};

std::string cell_text(std::string_view text, int longest) {
  return escape_markdown(short_line(text, longest));
}

/// The interval, and its own level where cells differ in it.
std::string interval_of(const Results& results, const CellResult& cell, int decimals) {
  const Interval& interval = cell.outcome->primary.interval;
  if (cell.outcome->n < 2) return "one seed: none";
  const std::string level = common_level(results) ? "" : ", " + level_words(interval.level);
  return interval_words(interval, decimals) + level;
}

/// A row a cell; those that are not as expected first.
Table cells_table(const Results& results) {
  const int decimals = decimals_for(results.primary.margin);
  Table table{.columns = {"cell", "verdict", "expected", numbers("difference"), numbers(interval_name(results)),
                          numbers("n"), "mechanism", "note"},
              .rows = {}};
  for (const CellResult& cell : results.cells) {
    if (!is_judged(cell)) continue;
    const VerdictStyle& style = style_of(cell.verdict);
    const std::string note = note_words(cell);
    DataRow row({name_words(cell.scenario), fmt::format("{} {}", style.symbol, style.words),
                 states_nothing(cell) ? "–" : is_as_expected(cell) ? "✓" : "✗", "—", "—", "—", mechanism_words(cell),
                 note.empty() ? "—" : note});
    row.cells.front().tag = cell.power_control ? "power control" : "";
    row.fault = !is_as_expected(cell);
    if (cell.outcome) {
      row.cells[3] = signed_number(cell.outcome->primary.mean, decimals);
      row.cells[4] = interval_of(results, cell, decimals);
      row.cells[5] = std::to_string(cell.outcome->n);
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// What noise alone does; nothing is judged by it.
Table noise_pairs(const Results& results) {
  const int decimals = decimals_for(results.primary.margin);
  Table table{.columns = {"A/A pair, not judged", numbers("difference"), numbers(interval_name(results)), numbers("n")},
              .rows = {}};
  for (const CellResult& cell : results.cells) {
    if (!cell.noise || !cell.outcome) continue;
    table.rows.push_back({{name_words(cell.scenario), signed_number(cell.outcome->primary.mean, decimals),
                           interval_of(results, cell, decimals), std::to_string(cell.outcome->n)}});
  }
  return table;
}

/// Of a cell that is not as expected, in the form of `lockstep check`, of which its note has the headline.
std::vector<std::string> findings_of(const CellResult& cell) {
  if (is_as_expected(cell) || cell.certification.divergence) return {};
  if (cell.failure) return cell.cause ? std::vector{with_cause("", *cell.cause)} : std::vector<std::string>();
  if (!cell.mechanism) return {};
  const CheckDocument found = document_of(*cell.mechanism);
  if (cell.mechanism->verdict == VerdictKind::divergent) return finding_lines(found);
  return found.decide.empty() ? std::vector<std::string>() : std::vector{"to decide: " + clean_line(found.decide)};
}

std::string unexpected(const CellResult& cell) {
  std::string text =
      fmt::format("\n### {} {}\n\n", style_of(cell.verdict).symbol, cell_text(cell.scenario, kLongestRowName));
  text += cell_text(note_words(cell), kLongestDetail) + "\n\n";
  for (const std::string& line : findings_of(cell)) text += "- " + cell_text(line, kLongestDetail) + "\n";
  if (!text.ends_with("\n\n")) text += "\n";
  std::string lines;
  if (cell.failure) {
    for (const std::string& line : cell.failure->last_lines) lines += short_line(line, kLongestLine) + "\n";
  }
  if (!lines.empty()) {
    lines.pop_back();
    text += fenced(lines) + "\n";
  }
  if (!cell.rerun.empty()) text += "Run it again:\n\n" + fenced(clean_line(cell.rerun));
  return text;
}

}  // namespace

std::string markdown_summary(const Results& results) {
  if (results.suite) return suite_markdown(results);
  constexpr int kLongestSentence = 4000;
  const Status status = status_of(results);
  Budget out;
  out.add(fmt::format("## {} {}: {}\n\n", status.symbol, status.word, cell_text(results.name, kLongestRowName)));
  if (!status.detail.empty()) out.add(cell_text(status.detail, kLongestSentence) + "\n\n");
  const Page page{results, cell_anchors(results)};
  const std::optional<Headline> headline = headline_of(results);
  if (!results.summary.sentence.empty() && !headline)
    out.add("**" + cell_text(results.summary.sentence, kLongestSentence) + "**\n\n");
  out.add(cell_text(question_words(results), kLongestNote) + "\n\n");
  if (const std::string changed = changed_words(results); !changed.empty())
    out.add(cell_text(changed, kLongestNote) + "\n\n");
  if (headline) {
    for (const std::string& sentence : headline->sentences)
      out.add("- **" + cell_text(sentence, kLongestSentence) + "**\n");
    for (const Answer& answer : headline->answers)
      out.add("- " + cell_text(answer.question + " " + answer.text, kLongestSentence) + "\n");
  }
  out.add(markdown_of(grid_section(page)));
  std::size_t rows = 0;
  if (results.certificate) out.add(markdown_of(certificate_section(*results.certificate)));
  if (results.detection) out.add(markdown_of(detection_section(*results.detection)));
  // The table of losses speaks for the cases that are certified; the others follow one by one.
  if (!results.cells.empty() && !results.detection && !results.certificate) {
    std::istringstream lines(markdown_of(tabled(cells_table(results))));
    for (std::string line; std::getline(lines, line) && out.add(line + "\n");) ++rows;
    if (const Table pairs = noise_pairs(results); !pairs.rows.empty()) out.add(markdown_of(tabled(pairs)));
    if (const std::string more = more_seeds_words(results); !more.empty())
      out.add("\n" + cell_text(more, kLongestNote) + "\n");
  }
  for (const Section& section : {growth_section(page), noise_section(page)}) out.add(markdown_of(section));
  if (results.timing) out.add(markdown_of(costs_section(*results.timing)));
  if (const std::string certified = certification_words(results); !certified.empty()) {
    out.add("\n" + cell_text(certified, kLongestNote) + "\n");
  }
  std::size_t details = 0, wanted = 0;
  for (const CellResult& cell : results.cells) {
    if (is_as_expected(cell) || results.detection) continue;
    ++wanted;
    if (!out.full() && out.add(unexpected(cell))) ++details;
  }
  std::string end;
  if (out.full() && !results.certificate) {
    end = fmt::format(
        "\nShown: {} of {} cells and {} of {} details; the rest is in report.html and results.json.\n",
        rows < 3 ? 0 : rows - 3, results.cells.size(), details, wanted);
  }
  if (!results.rerun.empty())
    end += "\nThe whole matrix again:\n\n" + fenced(short_line(results.rerun, 1000));
  return out.take(end);
}

namespace {

constexpr int kUnlimited = 1 << 20, kIndent = 6;

/// "+0.000 ± 0.006": the mean and half of its interval, and its own n and level where cells differ in them.
std::string difference_words(const Results& results, const CellResult& cell, int decimals) {
  if (!cell.outcome) return "";
  const MetricDifference& d = cell.outcome->primary;
  std::string text = ascii_minus(signed_number(d.mean, decimals));
  const double half = (d.interval.high - d.interval.low) / 2;
  if (std::isfinite(half)) text += fmt::format(" ± {:.{}f}", half, decimals);
  const std::string terms = own_terms(results, cell);
  return terms.empty() ? text : text + " (" + terms + ")";
}

/// What stands behind ±, of rows that show it.
std::string legend(const Results& results, int columns) {
  const auto shows = [](const CellResult& cell) {
    return !cell.anchor && cell.outcome && std::isfinite(cell.outcome->primary.interval.high);
  };
  if (std::ranges::none_of(results.cells, shows)) return "";
  return shorten(fmt::format("  ± half of the {}, {}", interval_name(results), pairs_words(results)), columns) + "\n";
}

struct Row {
  std::string name, verdict, difference, note;
  std::vector<std::string> finding;
  const char* css;
  bool is_expected;
};

std::vector<Row> rows_of(const Results& results) {
  const int decimals = decimals_for(results.primary.margin);
  std::vector<Row> rows;
  const std::optional<AnswerGrid> grid = grid_of(results);
  for (const bool controls : {false, true}) {
    for (const CellResult& cell : results.cells) {
      if (cell.power_control != controls || cell.noise || cell.anchor) continue;
      // The table of losses speaks for the cases that are certified, the grid for those that it shows.
      if ((results.certificate || (grid && grid->holds(cell))) && is_as_expected(cell)) continue;
      const VerdictStyle& style = style_of(cell.verdict);
      rows.push_back({(controls ? "control " : "") + name_words(cell.scenario),
                      std::string(style.symbol) + " " + style.words, difference_words(results, cell, decimals),
                      note_words(cell), findings_of(cell), style.css, is_as_expected(cell)});
    }
  }
  return rows;
}

int widest(const std::vector<Row>& rows, std::string Row::*column) {
  int width = 0;
  for (const Row& row : rows) width = std::max(width, display_width(row.*column));
  return width;
}

}  // namespace

std::string terminal_table(const Results& results, bool colour, int width) {
  if (results.suite) return suite_text(results, colour, width);
  const int columns = width > 0 ? std::max(width, kNarrowestWidth) : kUnlimited;
  if (width > 0) width = columns;
  const auto paint = [colour](std::string_view text, std::string_view css) { return painted(text, css, colour); };
  const Status status = status_of(results);
  std::string out =
      paint(shorten(clean_line(results.name) + " · " + question_words(results), columns), "bold") + "\n";
  if (const std::string changed = changed_words(results); !changed.empty()) out += wrapped(changed, columns);
  const Page page{results, cell_anchors(results)};
  if (results.detection) out += text_of(detection_section(*results.detection), colour, width);
  if (const std::optional<Headline> headline = headline_of(results))
    out += text_of(list(headline->sentences), colour, width);
  out += text_of(grid_section(page), colour, width);
  if (results.certificate) out += text_of(certificate_section(*results.certificate), colour, width);
  const std::vector<Row> rows = results.detection ? std::vector<Row>{} : rows_of(results);
  const int name = std::min(widest(rows, &Row::name), std::max(12, columns / 3));
  const int verdict = widest(rows, &Row::verdict), difference = widest(rows, &Row::difference);
  for (const Row& row : rows) {
    std::string head = "  " + pad_right(shorten(row.name, name), name) + "  ";
    const std::string shown = pad_right(row.verdict, verdict) + "  ";
    std::string tail;
    if (difference > 0) tail += pad_right(row.difference, difference) + "  ";
    const int left = columns - display_width(head) - display_width(shown);
    const std::string whole = tail + (row.is_expected ? "" : "✗ ") + row.note;
    std::string end = shorten(whole, left);
    end.erase(end.find_last_not_of(' ') + 1);
    out += head + paint(end.empty() ? row.verdict : shown, row.css) +
           (row.is_expected ? end : paint(end, "bold")) + "\n";
    std::vector<std::string> below = row.finding;
    if (!below.empty() && display_width(whole) > left) below.insert(below.begin(), row.note);
    for (const std::string& finding : below) {
      std::istringstream lines(wrapped(finding, columns - kIndent));
      for (std::string line; std::getline(lines, line);) out += std::string(kIndent, ' ') + line + "\n";
    }
  }
  const Table pairs = noise_pairs(results);
  if (!pairs.rows.empty()) out += text_of(tabled(pairs), colour, width);
  if (difference > 0) out += legend(results, columns);
  if (const std::string more = more_seeds_words(results); difference > 0 && !more.empty())
    out += shorten("  " + more, columns) + "\n";
  out += text_of(growth_section(page), colour, width);
  for (const CellResult& cell : results.cells) {
    if (const std::string drift = drift_sentence(cell.drift); !drift.empty())
      out += wrapped(fmt::format("{}: {}", name_words(cell.scenario), drift), std::min(columns, 118));
  }
  if (results.timing) out += text_of(costs_section(*results.timing), colour, width);
  if (const std::string certified = certification_words(results); !certified.empty())
    out += wrapped(certified, columns);
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
