#include "reports/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <cmath>
#include <functional>
#include <set>
#include <sstream>

#include "reports/plots/chart.h"
#include "tests/support/convergence_fixture.h"
#include "tests/support/results_fixture.h"

namespace lockstep {
namespace {

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

const std::vector<Results (*)()> kFixtures{
    outcome_results, missed_control_results, mechanism_results,   certificate_results,
    hostile_results, empty_results,          convergence_results, sequential_results};

TEST(HtmlReport, IsWellFormedWhateverTheResultsHold) {
  for (const auto& fixture : kFixtures) EXPECT_NO_THROW(parse(html_report(fixture())));
}

TEST(HtmlReport, HoldsNoElementOrAttributeThatCouldRun) {
  for (const auto& fixture : kFixtures) {
    each_element(parse(html_report(fixture())), [](const std::string& name, const ptree& element) {
      EXPECT_THAT(
          (std::set<std::string>{"script", "img", "iframe", "object", "embed", "link", "base", "form"}),
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

TEST(HtmlReport, ShowsForeignTextAsText) {
  const std::string page = html_report(hostile_results());
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<b onclick")));
  EXPECT_EQ(page.find('\x1b'), std::string::npos);
  EXPECT_EQ(page.find('\0'), std::string::npos);
}

TEST(HtmlReport, LinksOnlyToAnchorsThatExistOnce) {
  for (const auto& fixture : kFixtures) {
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

TEST(HtmlReport, GivesEqualBytesForEqualResults) {
  EXPECT_EQ(html_report(outcome_results()), html_report(outcome_results()));
}

TEST(HtmlReport, SaysFirstThatAMatrixCannotTell) {
  const std::string page = html_report(missed_control_results());
  const std::size_t cannot = page.find("Cannot tell</span>");
  ASSERT_NE(cannot, std::string::npos);
  EXPECT_LT(cannot, page.find("<section"));
  EXPECT_THAT(html_report(outcome_results()), Not(HasSubstr("annot tell")));
}

TEST(HtmlReport, NamesNoCauseWhereNoneIsKnown) {
  EXPECT_THAT(html_report(mechanism_results()), HasSubstr("no cause named"));
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
  EXPECT_THAT(forest_plot(r), HasSubstr("one seed: none"));
}

TEST(CurvePanels, SharesAPanelUpToSixCellsAndThenGivesEachItsOwn) {
  EXPECT_THAT(curve_panels(large_results(6, 50, 1), "accuracy_24"), Not(HasSubstr("class=\"small\"")));
  const std::string panels = curve_panels(large_results(7, 50, 1), "accuracy_24");
  EXPECT_THAT(panels, HasSubstr("class=\"small\""));
  EXPECT_THAT(panels, HasSubstr("href=\"#ref-accuracy_24-0\""));
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

TEST(HtmlReport, AnswersForCertificates) {
  const std::string certificate = html_report(certificate_results());
  EXPECT_THAT(certificate, HasSubstr("Does every loss equal the loss of one process?"));
  EXPECT_THAT(certificate, HasSubstr("0 of 1"));
  EXPECT_THAT(certificate, Not(HasSubstr("rows=unequal"))) << "the row's worst case speaks for it";
}

}  // namespace
}  // namespace lockstep
