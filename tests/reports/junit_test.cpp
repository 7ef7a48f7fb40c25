#include "reports/junit.h"

#include <gtest/gtest.h>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <map>
#include <sstream>

#include "tests/support/results_fixture.h"

namespace lockstep {
namespace {

using boost::property_tree::ptree;

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

TEST(Junit, AnUnexpectedVerdictFailsWithCellPlaceAndCommand) {
  const auto cases = cases_of(suite_of(mechanism_results()));
  const ptree& planted = cases.at("8x3 global mutant=grad_scale");
  EXPECT_EQ(planted.get<std::string>("failure.<xmlattr>.type"), "divergent");
  EXPECT_EQ(planted.get<std::string>("failure.<xmlattr>.message"),
            "8x3 global mutant=grad_scale is divergent, expected within envelope; first differs at step 0, "
            "reduced gradients");
  EXPECT_NE(planted.get<std::string>("failure").find("Run it again: lockstep run configs/smoke.yaml --only"),
            std::string::npos);
  EXPECT_EQ(cases.at("8x3 global").count("failure"), 0u);
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

}  // namespace
}  // namespace lockstep
