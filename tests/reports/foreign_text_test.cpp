// One hostile text in the place of every free text of results.json, in every format of report.

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "harness/base/json.h"
#include "harness/verdict/results/document.h"
#include "reports/format.h"
#include "reports/terminal.h"
#include "tests/support/convergence_fixture.h"
#include "tests/support/results_fixture.h"
#include "tests/support/suite_fixture.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr const char* kHostile = "\x1b]0;x\x07\xe2\x80\xae\nFORGED <script>x</script> |PIPE `TICK ````` \x1b[31mRED ]]> \"onload=\"x\"";

/// A pointer without its numbers: the elements of a list are alike.
std::string kind_of_place(const json::json_pointer& at) {
  std::string kind;
  for (json::json_pointer rest = at; !rest.empty(); rest.pop_back()) {
    const std::string& part = rest.back();
    kind = "/" + (part.find_first_not_of("0123456789") == std::string::npos ? std::string("*") : part) + kind;
  }
  return kind;
}

void each_text(const json& value, const json::json_pointer& at, const std::function<void(const json::json_pointer&)>& visit) {
  if (value.is_string() && at != json::json_pointer("/checksum")) visit(at);
  if (!value.is_structured()) return;
  for (const auto& [key, item] : value.items()) each_text(item, value.is_array() ? at / static_cast<std::size_t>(std::stoul(key)) : at / key, visit);
}

/// Reads a document that somebody sealed.
Results read(json document) {
  seal(document);
  return results_from_json(document.dump(), "results.json");
}

bool is_read(const json& document) {
  try {
    read(document);
    return true;
  } catch (const std::exception&) {
    return false;  // a word of a list, a number in hexadecimal
  }
}

/// Every text that may be any text is the hostile one. `free`: which kinds of places take it; what is not known yet is tried.
Results poisoned(const Results& results, std::map<std::string, bool>& free) {
  json document = json::parse(results_to_json(results));
  const json clean = document;
  each_text(clean, json::json_pointer(), [&](const json::json_pointer& at) {
    const auto [known, is_new] = free.emplace(kind_of_place(at), false);
    if (is_new) {
      json tried = clean;
      tried[at] = kHostile;
      known->second = is_read(tried);
    }
    if (known->second) document[at] = kHostile;
  });
  return read(document);
}

void expect_no_controls(const std::string& text, const std::string& where) {
  for (const char* raw : {"\x1b", "\x07", "\xe2\x80\xae"}) {
    const std::size_t at = text.find(raw);
    EXPECT_EQ(at, std::string::npos) << where << ": " << text.substr(at == std::string::npos ? 0 : at - std::min<std::size_t>(at, 200), 300);
  }
}

void expect_markup_as_text(const std::string& page, const std::string& where) {
  expect_no_controls(page, where);
  EXPECT_EQ(page.find("<script"), std::string::npos) << where;
  EXPECT_EQ(page.find("]]>"), std::string::npos) << where;
  std::istringstream in(page);
  boost::property_tree::ptree tree;
  EXPECT_NO_THROW(boost::property_tree::read_xml(in, tree)) << where;
}

/// Lines of Markdown outside fences, whose ends the text inside must not write.
std::string outside_fences(const std::string& text) {
  std::istringstream in(text);
  std::string out, fence;
  for (std::string line; std::getline(in, line);) {
    const std::string ticks = line.substr(0, line.find_first_not_of('`'));
    if (fence.empty() && ticks.size() >= 3)
      fence = ticks;
    else if (!fence.empty() && ticks.size() >= fence.size() && ticks == line)
      fence.clear();
    else if (fence.empty() && !line.starts_with("<details><summary>"))  // HTML on one line
      out += line + "\n";
  }
  EXPECT_TRUE(fence.empty()) << "a fence stays open";
  return out;
}

TEST(ForeignText, IsShownAsTextInEveryReport) {
  const std::map<std::string, Results (*)()> fixtures{{"outcome", outcome_results}, {"mechanism", mechanism_results}, {"detection", detection_results},
                                                      {"certificate", certificate_results}, {"convergence", convergence_results},
                                                      {"sequential", sequential_results}, {"suite", suite_results}};
  std::map<std::string, bool> free;
  for (const auto& [name, fixture] : fixtures) {
    const Results results = poisoned(fixture(), free);
    for (const char* markup : {"html", "junit"}) expect_markup_as_text(render(results, markup), name + " " + markup);
    const std::string markdown = render(results, "md"), outside = outside_fences(markdown);
    expect_no_controls(markdown, name + " md");
    for (const char* raw : {"<script", "\nFORGED"}) EXPECT_EQ(outside.find(raw), std::string::npos) << name << ": " << outside.substr(outside.find(raw) == std::string::npos ? 0 : outside.find(raw) - std::min<std::size_t>(outside.find(raw), 100), 200);
    for (const char* marked : {"|PIPE", "`TICK"}) {
      for (std::size_t at = outside.find(marked); at != std::string::npos; at = outside.find(marked, at + 1))
        EXPECT_EQ(outside.substr(at - 1, 1), "\\") << name << ": " << outside.substr(at - std::min<std::size_t>(at, 100), 150);
    }
    const std::string text = render(results, "text"), coloured = terminal_table(results, true, 100);
    expect_no_controls(text, name + " text");
    EXPECT_EQ(text.find("\nFORGED"), std::string::npos) << name;
    for (const char* raw : {"\x1b]", "\x07", "\xe2\x80\xae", "\x1b[31mRED", "\nFORGED"}) EXPECT_EQ(coloured.find(raw), std::string::npos) << name << " in colour";
    EXPECT_EQ(json::parse(render(results, "json")), json::parse(results_to_json(results))) << name;
  }
  EXPECT_GT(std::ranges::count_if(free, [](const auto& kind) { return kind.second; }), 60);
}

}  // namespace
}  // namespace lockstep
