#include "reports/check.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "reports/html/parts.h"
#include "reports/markup.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {
namespace {

const char* symbol(Mark mark) { return mark == Mark::same ? "✓" : mark == Mark::different ? "✗" : "–"; }

const char* css_of(Mark mark) { return mark == Mark::same ? "ok" : mark == Mark::different ? "bad" : "und"; }

std::string tinted(const std::string& text, Mark mark, bool colour) {
  return painted(text, css_of(mark), colour && mark != Mark::none);
}

std::string fact_text(const Fact& fact) {
  return fmt::format("{} {}{}{}", symbol(fact.mark), fact.name, fact.text.empty() ? "" : "  ", fact.text);
}

std::vector<std::string> sentences_of(const std::string& text) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(". ", at), text.size() - 1) + 1;
    all.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

/// Of how the runs ended and are configured, which comes before what was found.
bool is_preface(const std::string& sentence) {
  constexpr std::string_view kBegins[] = {"Configs differ in ", "Run A ", "Run B ", "In run ", "In both runs: "};
  return std::ranges::any_of(kBegins, [&](std::string_view begin) { return sentence.starts_with(begin); }) ||
         sentence.ends_with("to be compared by its own name.");
}

/// The first of the sentences that says what was found, taken out, to stand behind a colon.
std::string take_finding(std::vector<std::string>& said) {
  auto first = std::ranges::find_if_not(said, is_preface);
  if (first == said.end()) first = said.begin();
  if (first == said.end()) return "";
  std::string text = *first;
  said.erase(first);
  if (text.starts_with("Identical: ")) text.erase(0, std::string_view("Identical: ").size());
  if (text.ends_with('.')) text.pop_back();
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1])) != 0)
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

/// Each number with a point in six digits.
std::string with_short_numbers(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_not_of("0123456789.e+-", at), text.size());
    const std::string_view word(text.data() + at, end - at);
    double value = 0;
    const bool starts = at == 0 || text[at - 1] == ' ' || text[at - 1] == '(';
    const bool number = starts && word.find('.') < word.size() && std::from_chars(word.data(), word.data() + word.size(), value).ptr == word.data() + word.size();
    out += number ? short_number(value) : std::string(word);
    if (end < text.size()) out += text[end];
    at = end + 1;
  }
  return out;
}

/// The first difference takes the place of what was said of its phase.
void mark_difference(const Divergence& first, std::vector<Fact>& facts) {
  const std::string phase = replaced(first.phase, "_", " ");
  // How far they lie apart is in the sentence.
  const auto value = [](const std::string& text) { return text.substr(0, text.find("; ")); };
  std::string expected = with_short_numbers(value(first.expected)), found = with_short_numbers(value(first.actual));
  if (expected == found) expected = value(first.expected), found = value(first.actual);
  const std::string values = expected.empty() && found.empty() ? "" : fmt::format(": expected {}, found {}", expected, found),
                    where = first.where.empty() || first.where == phase ? "" : ", " + first.where;
  const Fact fact{Mark::different, phase, rank_words(first.rank) + where + values};
  const auto at = std::ranges::find_if(facts, [&](const Fact& each) { return each.name.starts_with(phase); });
  if (at != facts.end())
    *at = fact;
  else
    facts.push_back(fact);
}

}  // namespace

CheckDocument document_of(const Mechanism& mechanism) {
  CheckDocument document;
  document.facts = mechanism.facts;
  document.decide = mechanism.decide;
  std::vector<std::string> said = sentences_of(clean_line(mechanism.sentence));
  if (mechanism.verdict == VerdictKind::divergent) {
    document.verdict = Mark::different;
    if (mechanism.first_divergence) {
      const Divergence& first = *mechanism.first_divergence;
      // The mark shows it.
      if (!first.expected.empty() && !said.empty()) std::erase(said, sentences_of(clean_line(first.sentence) + " ").front());
      mark_difference(first, document.facts);
    }
    document.headline = mechanism.first_divergence ? difference_headline(mechanism) : "different: " + take_finding(said);
    if (mechanism.cause && !mechanism.cause->evidence.empty()) said.insert(said.begin(), mechanism.cause->evidence);
    if (mechanism.cause) document.fix = mechanism.cause->remedy;
  } else if (mechanism.verdict == VerdictKind::inconclusive) {
    document.headline = "undecided: " + take_finding(said);
  } else {
    document.verdict = Mark::same;
    document.headline =
        fmt::format("the same{}: {}", mechanism.verdict == VerdictKind::identical ? "" : " within rounding", take_finding(said));
  }
  document.because = std::move(said);
  return document;
}

std::vector<std::string> finding_lines(const CheckDocument& document) {
  std::vector<std::string> lines = document.because;
  if (!document.fix.empty()) lines.push_back("fix   " + document.fix);
  for (const Fact& fact : document.facts)
    if (fact.mark == Mark::different) lines.push_back(fact_text(fact));
  if (!document.decide.empty()) lines.push_back("to decide: " + document.decide);
  for (std::string& line : lines) line = clean_line(line);
  return lines;
}

std::string check_text(const CheckDocument& document, bool colour, int width) {
  constexpr std::size_t kMostLines = 12, kMostAlone = 3;
  std::string text;
  std::size_t lines = 0, alone_so_far = 0;
  // What agrees takes as few lines as fit; what does not has a line of its own.
  const std::size_t room = static_cast<std::size_t>(std::max(width, 80)) - 2;
  std::string line;
  std::size_t used = 0;
  const auto flush = [&] {
    if (!line.empty()) text += "  " + line + "\n", ++lines;
    line.clear();
    used = 0;
  };
  for (const Fact& fact : document.facts) {
    const std::string words = clean_line(fact_text(fact));
    const bool differs = fact.mark == Mark::different || fact.mark == Mark::undecided,
               alone = differs && ++alone_so_far <= kMostAlone;
    const std::size_t columns = static_cast<std::size_t>(display_width(words));
    if (alone || used + columns + 3 > room) flush();
    line += (line.empty() ? "" : "   ") + tinted(words, fact.mark, colour && differs);
    used += columns + 3;
    if (alone) flush();
  }
  flush();
  if (!document.decide.empty())
    text += "  to decide: " + clean_line(document.decide) + "\n";
  else if (!document.again.empty())
    text += "  again: " + clean_line(document.again) + "\n";
  else if (!document.more.empty())
    text += "  more: " + clean_line(document.more) + "\n";
  // The cause and how to fix it are never cut; what is said beyond them is, where the lines are full.
  std::string head =
      tinted(fmt::format("{} {}", symbol(document.verdict), clean_line(document.headline)), document.verdict, colour) +
      "\n";
  lines += 2 + (document.fix.empty() ? 0 : 1);
  const std::size_t left = std::max<std::size_t>(1, kMostLines - std::min(lines, kMostLines));
  for (std::size_t i = 0; i < std::min(left, document.because.size()); ++i)
    head += "  " + clean_line(document.because[i]) + "\n";
  if (!document.fix.empty()) head += "  fix   " + clean_line(document.fix) + "\n";
  return head + text;
}

static std::string marked_headline(const CheckDocument& document) {
  return document.verdict == Mark::none ? document.headline
                                        : fmt::format("{} {}", symbol(document.verdict), document.headline);
}

/// All but the headline.
static std::vector<Section> sections_of(const CheckDocument& document) {
  const char* const css = css_of(document.verdict);
  std::string why;
  for (const std::string& each : document.because)
    why += (why.empty() ? "" : std::ispunct(static_cast<unsigned char>(why.back())) ? " " : ". ") + each;
  std::vector<Section> sections{{"why",
                                 "",
                                 "",
                                 {answered({{document.verdict == Mark::same   ? "How sure?"
                                             : document.verdict == Mark::none ? "What is known?"
                                                                              : "Why?",
                                             why, css},
                                            {"How to fix it?", document.fix},
                                            {"What would decide?", document.decide},
                                            {"What shows more?", document.more}})}}};
  for (const SuiteChart& chart : document.charts) {
    if (chart_drawing(chart).empty()) continue;
    sections.push_back({"chart-" + slug(chart.title), chart.title, chart.why, {charted(chart)}});
  }
  Table facts{.columns = {"", "compared", "found"}, .rows = {}};
  for (const Fact& fact : document.facts) {
    facts.rows.push_back({{Datum(symbol(fact.mark), std::string("t-") + css_of(fact.mark)), fact.name, fact.text}});
  }
  if (!facts.rows.empty()) sections.push_back({"facts", "What was compared", "", {tabled(std::move(facts))}});
  Section commands{"again", "Commands", "", {}};
  const std::pair<const char*, const std::string*> all[] = {{"Reference:", &document.commands[0]},
                                                            {"Run:", &document.commands[1]},
                                                            {"Again:", &document.again}};
  for (const auto& [name, command] : all) {
    if (!command->empty()) commands.parts.insert(commands.parts.end(), {prose(name), code(clean_line(*command))});
  }
  sections.push_back(std::move(commands));
  return sections;
}

std::string check_markdown(const CheckDocument& document) {
  std::string text = fmt::format("### {}\n", escape_markdown(marked_headline(document)));
  for (const Section& section : sections_of(document)) text += markdown_of(section);
  return text;
}

std::string check_page(const CheckDocument& document) {
  Markup out;
  open_page(out, "lockstep check: " + document.headline);
  out.open("body").open("main");
  const char* const css = css_of(document.verdict);
  out.open("div", {{"class", std::string("verdict ") + css}, {"role", "status"}});
  out.element("h1", {{"class", "first"}}, marked_headline(document));
  if (!document.run.empty())
    out.element("span", {{"class", "detail"}}, fmt::format("{} against {}", document.run, document.reference));
  out.close();
  for (const Section& section : sections_of(document)) write_section(out, section);
  return out.take();
}

nlohmann::json document_json(const CheckDocument& document) {
  nlohmann::json json = {{"headline", document.headline}, {"because", document.because}};
  if (document.verdict == Mark::none) return json;
  json.update({{"fix", document.fix}, {"decide", document.decide}, {"verdict", to_word(document.verdict)}});
  for (const Fact& fact : document.facts)
    json["facts"].push_back({{"name", fact.name}, {"text", fact.text}, {"state", to_word(fact.mark)}});
  return json;
}

CheckDocument document_of(const std::string& text) {
  CheckDocument document;
  document.verdict = Mark::none;
  std::istringstream lines(text);
  std::getline(lines, document.headline);
  for (std::string line; std::getline(lines, line);)
    document.because.push_back(line.substr(std::min(line.find_first_not_of(' '), line.size())));
  return document;
}

}  // namespace lockstep
