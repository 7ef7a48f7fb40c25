#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/answer/results/words.h"
#include "harness/base/json.h"
#include "harness/judge/compare/bits.h"
#include "reports/format.h"
#include "reports/html/parts.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "tests/support/results_fixture.h"
#include "tests/support/synthetic_matrix.h"

// Every report, byte for byte: texts that show a kind of section first as they are, and all, pages part by part, by their hashes.
// `ci/golden --update` rewrites the files; the diff is read, and of what has a hash alone the texts beside the build.

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/reports/golden";

/// Where what came out is written: beside the build, or where $LOCKSTEP_PAGES says.
fs::path seen(const std::string& name) {
  const char* const folder = std::getenv("LOCKSTEP_PAGES");
  return (folder != nullptr ? fs::path(folder) : fs::path(LOCKSTEP_BINARY_DIR) / "golden") / name;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// "line 12: expected ..., actual ..." of the first line that differs.
std::string first_difference(const std::string& expected, const std::string& actual) {
  std::istringstream a(expected), b(actual);
  std::string line_a, line_b;
  for (int line = 1;; ++line) {
    const bool more_a = static_cast<bool>(std::getline(a, line_a)),
               more_b = static_cast<bool>(std::getline(b, line_b));
    if (!more_a && !more_b) return "only the last line feed differs";
    if (more_a != more_b || line_a != line_b) {
      return "line " + std::to_string(line) + ":\n  expected: " + (more_a ? line_a : "(end)") +
             "\n  actual:   " + (more_b ? line_b : "(end)");
    }
  }
}

void check(const std::string& name, const std::string& actual) {
  if (std::getenv("LOCKSTEP_UPDATE_GOLDEN")) {
    write(kGolden / name, actual);
    return;
  }
  ASSERT_TRUE(fs::exists(kGolden / name))
      << "no golden file " << name << "; run ci/golden --update and read the diff";
  const std::string expected = read(kGolden / name);
  if (expected == actual) return;
  write(seen(name), actual);
  FAIL() << name << " differs at " << first_difference(expected, actual) << "\nwhat came out: " << seen(name)
         << "\nif it is meant: ci/golden --update, and read the diff";
}

/// At step 50 alone, by as much in every seed.
void part_at_one_step(support::SyntheticMatrix& matrix, const std::string& cell) {
  for (const int64_t seed : matrix.plan.matrix.seeds) {
    Series& curve = matrix.result(support::SyntheticMatrix::id_of(cell, seed)).curves["accuracy_24"];
    for (std::size_t i = 0; i < curve.steps.size(); ++i) {
      if (curve.steps[i] == 50) curve.values[i] -= 0.1;
    }
  }
}

NoiseScale without_theory() {
  NoiseScale scale;
  scale.small_batch = 3;
  scale.big_batch = 24;
  scale.steps = 100;
  scale.batch = scale.interval.high = std::numeric_limits<double>::infinity();
  scale.interval.low = 40;
  scale.caveat = "The theory does not apply.";
  return scale;
}

/// A matrix at one global batch whose margin was changed after its runs: two cells that train the same, one that
/// is shifted within the margin, one undecided, one divergent, one that failed, and a power control. Its cells
/// have gradient noise scales to which no theory applies, and one parts at a single step.
Results judged_results() {
  support::SyntheticMatrix matrix;
  matrix.add_cell({"8x3 global", 0.0, 0.03});
  matrix.add_cell({"8x3 global dropout", 0.002, 0.008});
  matrix.add_cell({"8x3 global rank_seed=same", -0.017, 0.008});
  matrix.add_cell({"8x3 mixed", 0.02, 0.036, 0, false, {VerdictKind::equivalent, VerdictKind::inconclusive}});
  matrix.add_cell({"8x3 local", -0.094, 0.02, -0.1, false, {VerdictKind::divergent}});
  matrix.add_cell({"8x3 layer", 0.0});
  matrix.add_cell({"8x3 global lr_scale=0.125", -0.347, 0.018, 0.2, true});
  part_at_one_step(matrix, "8x3 global dropout");
  Failure died;
  died.run = support::SyntheticMatrix::id_of("8x3 layer", 2);
  died.kind = FailureKind::died;
  died.rank = 3;
  died.step = 17;
  died.operation = "all_gather loss.actions";
  died.message = "killed by signal 9";
  matrix.options.failures[died.run] = died;
  EvidenceSources sources = matrix.sources();
  sources.read_noise_scale = [](const RunConfig&, const std::string&) { return without_theory(); };
  Results results = judge_matrix_from(matrix.plan, matrix.options, sources);
  // What differs from machine to machine.
  results.provenance = {{"build", "0.1.0"}};
  results.declaration = Declaration{80, 0, 80, {{"margin", "0.02", "0.03", 80}}};
  return results;
}

struct Fixture {
  const char* name;
  Results (*make)();
  std::string_view whole = "";  ///< in which formats it is kept whole
};

constexpr Fixture kFixtures[] = {{"mechanism", mechanism_results, "xml md txt"},
                                 {"certificate", certificate_results, "md"},
                                 {"detection", detection_results, "md"},
                                 {"sequential", sequential_results, "md"},
                                 {"laboratory", suite_results, "xml md txt"},
                                 {"missed_control", missed_control_results},
                                 {"outcome", outcome_results},
                                 {"judged", judged_results},
                                 {"convergence", convergence_results, "md"},
                                 {"hostile", hostile_results},
                                 {"empty", empty_results}};

/// Leaves what came out beside the build, to be compared with that of another commit.
void leave(const Fixture& fixture, const std::string& format, const std::string& text) {
  const std::string name = fixture.name + ("." + format);
  write(seen(name), text);
  if (fixture.whole.find(format) != std::string_view::npos) check(name, text);
}

struct Part {
  std::string name, text;
};

/// What stands before the sections ("begin") and behind them ("end"), and each section by its id.
std::vector<Part> parts_of(const std::string& page) {
  static const std::string kBegin = "<section id=\"", kEnd = "</section>";
  std::vector<Part> parts;
  std::size_t at = page.find(kBegin);
  parts.push_back({"begin", page.substr(0, at)});
  while (at != std::string::npos) {
    const std::size_t id = at + kBegin.size(), end = page.find(kEnd, at) + kEnd.size(), next = page.find(kBegin, end);
    parts.push_back({page.substr(id, page.find('"', id) - id), page.substr(at, end - at)});
    if (next == std::string::npos) parts.push_back({"end", page.substr(end)});
    at = next;
  }
  return parts;
}

TEST(Golden, Pages) {
  std::string hashes;
  for (const Fixture& fixture : kFixtures) {
    const std::string page = html_report(fixture.make());
    leave(fixture, "html", page);
    for (const Part& part : parts_of(page)) hashes += fmt::format("{}.html {} {}\n", fixture.name, part.name, hash_in_hex(part.text));
  }
  check("pages.txt", hashes);
}

TEST(Golden, Texts) {
  std::string hashes;
  for (const Fixture& fixture : kFixtures) {
    const Results results = fixture.make();
    for (const auto& [format, text] : {std::pair("xml", junit_report(results)), {"md", markdown_summary(results)}, {"txt", terminal_table(results, false, 118)}}) {
      leave(fixture, format, text);
      hashes += fmt::format("{}.{} {}\n", fixture.name, format, hash_in_hex(text));
    }
  }
  check("texts.txt", hashes);
}

/// docs/report.md calls sections and questions what pages call them, and leaves out no section of a matrix's page.
TEST(ReportPage, HasTheSectionsThatItsManualNames) {
  std::string titles;
  for (const Fixture& fixture : kFixtures) titles += html_report(fixture.make());
  const std::string manual = read(fs::path(LOCKSTEP_SOURCE_DIR) / "docs/report.md");
  const auto each = [](const std::string& text, const std::string& begin, const std::string& end, const auto& visit) {
    for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
      const std::size_t from = at + begin.size();
      visit(text.substr(from, text.find(end, from) - from));
    }
  };
  const std::string table = manual.substr(manual.find("| section | shows |"), manual.find("## When the batch") - manual.find("| section | shows |"));
  each(table, "**", "**", [&](const std::string& title) {
    if (title.empty() || title[0] < 'A' || title[0] > 'Z') return;  // between two titles
    const std::string shown = escape_markup(title);
    EXPECT_TRUE(titles.find(">" + shown + "</h2>") != std::string::npos || titles.find(">" + shown + "</dt>") != std::string::npos) << title;
  });
  each(html_report(convergence_results()), "<h2>", "</h2>", [&](const std::string& title) {
    EXPECT_TRUE(std::ranges::any_of(std::array{title, replaced(title, "&#39;", "'")}, [&](const auto& each) { return table.find("**" + each + "**") != std::string::npos; })) << title;
  });
}

TEST(Render, MakesTheSameFromADocumentAsFromWhatItWasWrittenFrom) {
  for (const auto& make : {outcome_results, missed_control_results, mechanism_results, certificate_results,
                           detection_results, empty_results, convergence_results,
                           sequential_results, suite_results}) {
    const Results results = make(), again = results_from_json(results_to_json(results), "results.json");
    for (const ReportFormat& format : report_formats()) {
      const std::string name(format.name);
      EXPECT_EQ(render(again, name), render(results, name)) << results.name << " as " << name;
    }
  }
}

TEST(Render, KnowsWhatARunLeaves) {
  std::vector<std::string> files;
  for (const ReportFormat& format : report_formats()) files.emplace_back(format.file_name);
  EXPECT_THAT(files, testing::IsSupersetOf({"report.html", "summary.md", "results.json", "junit.xml"}));
}

TEST(Render, RefusesAnUnknownFormatAndListsTheKnownOnes) {
  EXPECT_THAT([&] { render(outcome_results(), "pdf\x1b[31m"); },
              testing::ThrowsMessage<std::invalid_argument>(
                  testing::StartsWith("unknown report format 'pdf'; known are html, md, json, junit, ")));
}

using boost::property_tree::ptree;
using testing::HasSubstr;
using testing::Not;

ptree parse(const std::string& text) {
  std::istringstream in(text);
  ptree tree;
  boost::property_tree::read_xml(in, tree);
  return tree;
}

/// Calls `visit` with the name, the attributes and the text of every element.
void each_element(const ptree& tree, const std::function<void(const std::string&, const ptree&)>& visit) {
  for (const auto& [name, child] : tree) {
    if (name == "<xmlattr>" || name == "<xmlcomment>") continue;
    visit(name, child);
    each_element(child, visit);
  }
}

std::string attribute(const ptree& element, const std::string& name) {
  const auto attributes = element.get_child_optional("<xmlattr>");
  return attributes ? attributes->get<std::string>(ptree::path_type(name, '\n'), "") : "";
}

const std::vector<Results (*)()> kPages{
    outcome_results, missed_control_results, mechanism_results,   certificate_results,
    hostile_results, empty_results,          convergence_results, sequential_results};

TEST(HtmlReport, HoldsNoElementOrAttributeThatCouldRun) {
  for (const auto& fixture : kPages) {
    each_element(parse(html_report(fixture())), [](const std::string& name, const ptree& element) {
      EXPECT_THAT(
          (std::set<std::string>{"img", "iframe", "object", "embed", "link", "base", "form"}),
          Not(testing::Contains(name)));
      const auto attributes = element.get_child_optional("<xmlattr>");
      if (!attributes) return;
      for (const auto& [key, value] : *attributes) {
        EXPECT_NE(key.substr(0, 2), "on") << name;
        if (key == "href") {
          EXPECT_EQ(value.data().front(), '#') << value.data();
        }
        EXPECT_NE(key, "src");
      }
    });
  }
}

/// page_check.py recomputes the hash.
TEST(HtmlReport, RunsOneScriptOfItsOwnThatAsksForNothing) {
  const std::string script(html_script());
  EXPECT_LE(script.size(), 4096u);
  for (const char* asking : {"http", "//", "fetch", "import", "Request", "Socket", "eval", "innerHTML", "src", "open", "location", "storage"})
    EXPECT_THAT(script, Not(HasSubstr(asking)));
  for (const auto& fixture : kPages) {
    const std::string page = html_report(fixture()), around = replaced(page, "<script>" + script + "</script>", "");
    EXPECT_EQ(around.size() + script.size() + 17, page.size()) << "once";
    EXPECT_THAT(around, Not(HasSubstr("<script")));
    EXPECT_THAT(escape_markup("'sha256-" + std::string(kScriptHash) + "'"), testing::Truly([&](const std::string& allowed) {
      return page.find("script-src " + allowed + "\"") != std::string::npos;
    }));
  }
}

TEST(HtmlReport, LinksOnlyToAnchorsThatExistOnce) {
  for (const auto& fixture : kPages) {
    std::multiset<std::string> ids;
    std::set<std::string> links;
    each_element(parse(html_report(fixture())), [&](const std::string&, const ptree& element) {
      if (const std::string id = attribute(element, "id"); !id.empty()) ids.insert(id);
      if (const std::string href = attribute(element, "href"); !href.empty()) links.insert(href.substr(1));
    });
    for (const std::string& id : ids) EXPECT_EQ(ids.count(id), 1u) << id;
    for (const std::string& link : links) EXPECT_EQ(ids.count(link), 1u) << link;
  }
}

TEST(HtmlReport, EveryDrawingHasATitleAndADescription) {
  each_element(parse(html_report(outcome_results())), [](const std::string& name, const ptree& element) {
    if (name != "svg" || attribute(element, "role") != "img") return;
    EXPECT_FALSE(element.get<std::string>("title", "").empty());
    EXPECT_GT(element.count("desc"), 0u);
  });
}

TEST(HtmlReport, MarksMetricsThatDisagreeInSign) {
  const std::string page = html_report(outcome_results());
  EXPECT_THAT(page, HasSubstr("better, although 24-way accuracy is worse"));
  Results agreeing = outcome_results();
  agreeing.cells.resize(1);
  EXPECT_THAT(html_report(agreeing), Not(HasSubstr("although 24-way accuracy is")));
}

TEST(HtmlReport, StaysSmallForALargeMatrix) {
  EXPECT_LE(html_report(large_results(24, 300, 10)).size(), 600u * 1000);
}

std::string forest_plot(const Results& results) {
  Markup out;
  write_section(out, outcome_section({results, cell_anchors(results)}));
  return out.take();
}

TEST(ForestPlot, PutsPowerControlsLast) {
  Results r = outcome_results();
  std::swap(r.cells.front(), r.cells.back());
  const std::string plot = forest_plot(r);
  EXPECT_GT(plot.find("class=\"tag\">power control"), plot.find("8x3 local</a>"));
}

TEST(ForestPlot, ShowsWhatIsOffScaleAtTheEdgeAndSaysSo) {
  Results r = outcome_results();
  EXPECT_THAT(forest_plot(r), Not(HasSubstr("off scale")));
  r.cells[1].outcome->primary.mean = -7;
  const std::string plot = forest_plot(r);
  EXPECT_THAT(plot, HasSubstr("off scale"));
  EXPECT_THAT(plot, HasSubstr("M1 0 10-6 10 6z"));
}

TEST(ForestPlot, DrawsNoIntervalFromOneSeed) {
  Results r = outcome_results();
  r.cells.resize(1);
  r.cells[0].outcome->n = 1;
  r.cells[0].outcome->primary.interval = {-INFINITY, INFINITY, 0.95};
  EXPECT_THAT(forest_plot(r), HasSubstr("one seed: no interval"));
}

TEST(CurvePanels, SharesAPanelUpToSixCellsAndThenGivesEachItsOwn) {
  EXPECT_THAT(curve_panels(large_results(6, 50, 1), "accuracy_24"), Not(HasSubstr("class=\"small\"")));
  const std::string panels = curve_panels(large_results(7, 50, 1), "accuracy_24");
  EXPECT_THAT(panels, HasSubstr("class=\"small\""));
}

TEST(CurvePanels, SayWhatGuessingGives) {
  Results r = outcome_results();
  EXPECT_THAT(curve_panels(r, "accuracy_24"), HasSubstr("dotted: chance level, 1/24"));
  EXPECT_THAT(curve_panels(r, "loss_over_log_n"), HasSubstr("dotted: chance level, log N"));
  const auto panels = [&r](double chance) {
    for (CurveBand& band : r.references[0].curves) band.chance = chance;
    return curve_panels(r, "accuracy_24");
  };
  EXPECT_THAT(panels(1.0 / 9), HasSubstr("dotted: chance level, 1/9"));
  EXPECT_THAT(panels(std::log(4.0)), HasSubstr("dotted: chance level, log 4"));
  EXPECT_THAT(panels(0.37), HasSubstr("dotted: chance level, 0.370"));
}

TEST(CurvePanels, AreEmptyWithoutThatCurve) {
  EXPECT_EQ(curve_panels(outcome_results(), "no_such_metric"), "");
}

TEST(Markdown, HasARowACell) {
  for (const auto& fixture : {outcome_results, missed_control_results, mechanism_results, hostile_results}) {
    std::istringstream in(markdown_summary(fixture()));
    std::string line;
    std::map<std::size_t, std::size_t> rows;
    bool in_block = false, in_table = false;
    while (std::getline(in, line)) {
      if (line.starts_with("```")) in_block = !in_block;
      in_table = in_table ? line.starts_with("|") : line.starts_with("| cell |");
      if (in_block || !in_table) continue;
      std::size_t bars = 0;
      for (std::size_t i = 0; i < line.size(); ++i) bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
      ++rows[bars];
    }
    ASSERT_EQ(rows.size(), 1U) << "rows of one table have as many columns";
    EXPECT_EQ(rows.begin()->second, fixture().cells.size() + 2);
  }
}

TEST(Markdown, StaysBelowTheLimitAndSaysWhatIsLeftOut) {
  Results r = outcome_results();
  CellResult loud = r.cells[4];
  loud.failure->last_lines.assign(20, std::string(4000, '`') + std::string(4000, '<'));
  r.cells.assign(400, loud);
  const std::string text = markdown_summary(r);
  EXPECT_LE(text.size(), kLargestMarkdownBytes);
  EXPECT_THAT(text, HasSubstr("the rest is in report.html"));
  EXPECT_THAT(text, HasSubstr("The whole matrix again"));
  EXPECT_THAT(markdown_summary(outcome_results()), Not(HasSubstr("the rest is in")));
}

TEST(Markdown, CutsNoCauseOffHoweverLongTheEvidenceIs) {
  Results results = mechanism_results();
  results.cells[2].mechanism->first_divergence->sentence = std::string(600, 'x');
  results.cells[2].mechanism->cause = Cause{"gradient-times-world", 0.98, "8 times", "Divide by the world size once."};
  EXPECT_THAT(markdown_summary(results), testing::AllOf(HasSubstr("gradient-times-world (from step 0)"),
                                                        HasSubstr("**Divide by the world size once.** |\n")));
}

ptree suite_of(const Results& results) {
  std::istringstream in(junit_report(results));
  ptree tree;
  boost::property_tree::read_xml(in, tree);
  return tree.get_child("testsuites.testsuite");
}

std::map<std::string, ptree> cases_of(const ptree& suite) {
  std::map<std::string, ptree> cases;
  for (const auto& [name, child] : suite) {
    if (name == "testcase") cases[child.get<std::string>("<xmlattr>.name")] = child;
  }
  return cases;
}

TEST(Junit, CountsWhatItHolds) {
  for (const auto& fixture : {outcome_results, missed_control_results, mechanism_results, certificate_results,
                              hostile_results, empty_results}) {
    const ptree suite = suite_of(fixture());
    std::size_t cases = 0, failures = 0, errors = 0;
    for (const auto& [name, child] : suite) {
      if (name != "testcase") continue;
      ++cases;
      failures += child.count("failure");
      errors += child.count("error");
    }
    EXPECT_EQ(suite.get<std::string>("<xmlattr>.tests"), std::to_string(cases));
    EXPECT_EQ(suite.get<std::string>("<xmlattr>.failures"), std::to_string(failures));
    EXPECT_EQ(suite.get<std::string>("<xmlattr>.errors"), std::to_string(errors));
  }
}

TEST(Junit, ARunThatDiedIsAnError) {
  const auto cases = cases_of(suite_of(outcome_results()));
  const ptree& died = cases.at("8x3 global lr_rule=linear");
  EXPECT_EQ(died.get<std::string>("error.<xmlattr>.type"), "died");
  EXPECT_EQ(
      died.get<std::string>("error.<xmlattr>.message"),
      "8x3 global lr_rule=linear: rank 3 died at step 41 in all_gather loss.actions: killed by signal 9");
}

TEST(Junit, AnExpectedFailurePasses) {
  Results r = outcome_results();
  r.cells[4].expected = {VerdictKind::failed};
  r.cells[4].as_expected = true;
  EXPECT_EQ(cases_of(suite_of(r)).at("8x3 global lr_rule=linear").count("error"), 0u);
}

TEST(Junit, AnUndecidedCellFailsOnlyWhereADecisionWasExpected) {
  Results r = outcome_results();
  EXPECT_EQ(cases_of(suite_of(r)).at("8x3 global lr_rule=sqrt").count("failure"), 0u);
  r.cells[3].expected = {VerdictKind::equivalent};
  r.cells[3].as_expected = false;
  EXPECT_EQ(cases_of(suite_of(r)).at("8x3 global lr_rule=sqrt").get<std::string>("failure.<xmlattr>.type"),
            "inconclusive");
}

TEST(Junit, AMissedPowerControlFailsEvenIfItsVerdictWasListed) {
  Results r = missed_control_results();
  r.cells[1].as_expected = true;
  const auto cases = cases_of(suite_of(r));
  EXPECT_EQ(cases.at("8x3 global lr_scale=0.125").count("failure"), 1u);
  EXPECT_EQ(cases.at("8x3 global").count("failure"), 0u);
}

TEST(Junit, HoldsOnlyCharactersThatXmlAllows) {
  const std::string text = junit_report(hostile_results());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    EXPECT_TRUE(byte >= 0x20 || c == '\n' || c == '\t') << static_cast<int>(byte);
  }
  EXPECT_EQ(text.find("\xef\xbf\xbf"), std::string::npos);
  EXPECT_EQ(text.find("]]>"), std::string::npos);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(TerminalTable, StaysWithinTheWidth) {
  for (const auto& fixture : {outcome_results, missed_control_results, mechanism_results, certificate_results,
                              hostile_results, empty_results, detection_results, convergence_results, sequential_results,
                              judged_results, suite_results}) {
    for (const int width : {40, 60, 80, 100, 140}) {
      for (const std::string& line : lines_of(terminal_table(fixture(), false, width))) {
        EXPECT_LE(display_width(line), width) << line;
      }
    }
  }
}

TEST(TerminalTable, ColoursOnlyIfAskedAndChangesNothingElse) {
  const std::string plain = terminal_table(outcome_results(), false, 100),
                    colour = terminal_table(outcome_results(), true, 100);
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  EXPECT_NE(colour.find('\x1b'), std::string::npos);
  EXPECT_EQ(clean_text(colour), plain);
}

TEST(TerminalTable, AlignsItsColumnsByWidthNotBytes) {
  Results r = outcome_results();
  r.cells.resize(2);
  r.cells[0].scenario = "名前";
  const std::vector<std::string> lines = lines_of(terminal_table(r, false, 0));
  const auto column = [](const std::string& line, std::string_view symbol) {
    return display_width(line.substr(0, line.find(symbol)));
  };
  const auto line_with = [&](std::string_view symbol) {
    return *std::ranges::find_if(lines,
                                 [&](const std::string& line) { return line.find(symbol) != std::string::npos; });
  };
  EXPECT_EQ(column(line_with("= equivalent"), "= equivalent"), column(line_with("≠ divergent"), "≠ divergent"));
}

TEST(TerminalTable, NamesCauseAndRemedyOfAnUnexpectedCellAtAnyWidth) {
  Results results = mechanism_results();
  EXPECT_THAT(terminal_table(results, false, 60), testing::Not(HasSubstr("fix"))) << "none is known";
  results.cells[2].mechanism->cause = Cause{"gradient-times-world", 0.98, "8 times", "Divide by the world size once."};
  for (const int width : {60, 100, 0}) {
    std::string text = terminal_table(results, false, width);
    while (text.find("\n        ") != std::string::npos)
      text.replace(text.find("\n        "), 9, " ");  // as it was before it was wrapped
    EXPECT_THAT(text,
                testing::AllOf(HasSubstr("fix: Divide by the world size once."), HasSubstr("(gradient-times-world)")))
        << width;
  }
}

TEST(TerminalTable, ForeignSequencesDoNotReachTheTerminal) {
  const std::string text = terminal_table(hostile_results(), false, 0);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(clean_text(text), text) << "nothing is left that a terminal would act on";
}

}  // namespace
}  // namespace lockstep
