// Axes and drawings over ranges that no sane run has: equal, one last place, denormal, as large as numbers
// get, and none at all.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <bit>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "harness/base/json.h"
#include "harness/verdict/results/document.h"
#include "reports/html.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/plots/chart.h"
#include "reports/plots/curves.h"
#include "reports/terminal.h"
#include "tests/support/convergence_fixture.h"
#include "tests/support/results_fixture.h"
#include "tests/support/whole.h"

namespace lockstep {
namespace {

using testing::Each;
using testing::Ge;
using testing::Le;
using Json = nlohmann::ordered_json;

constexpr double kMax = std::numeric_limits<double>::max(), kInf = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN(),
                 kTiny = std::numeric_limits<double>::denorm_min(),
                 kLeast = std::numeric_limits<double>::min();

/// Every pair of these and of their neighbours is a range.
std::vector<double> odd_values() {
  std::vector<double> values;
  for (const double value : {0.0, kTiny, 1e-310, kLeast, 1e-300, 1e-17, 0.1, 1.0, 3.17, 24.0, 1e9, 1e15,
                             9007199254740993.0, 1e17, 1e300, kMax}) {
    for (const double near :
         {std::nextafter(value, -kInf), value, std::nextafter(value, kInf), value * (1 + 1e-12)}) {
      values.push_back(near);
      values.push_back(-near);
    }
  }
  values.insert(values.end(), {kInf, -kInf, kNan});
  return values;
}

void each_range(const std::function<void(double, double)>& visit) {
  const std::vector<double> values = odd_values();
  for (const double low : values) {
    for (const double high : values) visit(low, high);
  }
}

TEST(Drawable, IsFiniteAndHighWhateverTheEnds) {
  each_range([](double low, double high) {
    const AxisRange range = drawable(low, high);
    ASSERT_TRUE(std::isfinite(range.low) && std::isfinite(range.high) &&
                std::isfinite(range.high - range.low));
    ASSERT_GT(range.high, range.low) << low << " " << high;
    const double largest = std::max(std::abs(range.low), std::abs(range.high));
    ASSERT_GE(range.high - range.low, 0.99e-9 * largest) << low << " " << high;
  });
}

TEST(Drawable, LeavesOrdinaryRangesAlone) {
  for (const auto& [low, high] :
       {std::pair{0.0, 1.0}, {-0.12, 0.12}, {3.170, 3.171}, {1e-30, 2e-30}, {0.0, 1e12}}) {
    EXPECT_EQ(drawable(low, high).low, low);
    EXPECT_EQ(drawable(low, high).high, high);
  }
  EXPECT_EQ(drawable(2, 2).high, 3);
}

TEST(NiceTicks, AreFewAndInsideWhateverTheRange) {
  each_range([](double low, double high) {
    for (const int most : {1, 4, 7}) {
      const Ticks ticks = nice_ticks(low, high, most);
      ASSERT_LE(ticks.values.size(), 101u) << low << " " << high;
      for (const double value : ticks.values) ASSERT_TRUE(std::isfinite(value)) << low << " " << high;
      for (const double value : ticks.values) ASSERT_LT(tick_text(value, ticks).size(), 30u);
    }
  });
}

TEST(NiceTicks, AreTwoOrMoreOnEveryAxis) {
  each_range([](double low, double high) {
    const AxisRange range = drawable(low, high);
    const Ticks ticks = nice_ticks(range.low, range.high, 6);
    ASSERT_GE(ticks.values.size(), 2u) << range.low << " " << range.high;
    ASSERT_LE(ticks.values.size(), 8u) << range.low << " " << range.high;
    const double slack = 1e-6 * (range.high - range.low);
    ASSERT_THAT(ticks.values, Each(testing::AllOf(Ge(range.low - slack), Le(range.high + slack))));
    for (std::size_t i = 1; i < ticks.values.size(); ++i) {
      ASSERT_NE(tick_text(ticks.values[i], ticks), tick_text(ticks.values[i - 1], ticks))
          << range.low << " " << range.high;
    }
  });
}

TEST(NiceTicks, AreTheEndsOfARangeOfOneLastPlace) {
  const double low = 3.1780538303479458, high = std::nextafter(low, 4);
  EXPECT_EQ(nice_ticks(low, high, 6).values, (std::vector<double>{low, high}));
}

TEST(StepTicks, AreFewWhateverTheLastStep) {
  for (const double high : odd_values()) {
    const Ticks ticks = step_ticks(high, 7);
    ASSERT_GE(ticks.values.size(), 1u) << high;
    ASSERT_LE(ticks.values.size(), 9u) << high;
  }
}

TEST(PowersOfTen, AreFewWhateverTheRange) {
  each_range(
      [](double low, double high) { ASSERT_LE(powers_of_ten(low, high).size(), 8u) << low << " " << high; });
}

TEST(FrameOf, IsFiniteWhateverTheCurve) {
  each_range([](double low, double high) {
    Curve curve;
    curve.points = {{0, low, low, high}, {10, high, std::min(low, high), std::max(low, high)}};
    std::erase_if(curve.points, [](const CurvePoint& p) {
      return !std::isfinite(p.median) || !std::isfinite(p.low) || !std::isfinite(p.high);
    });
    for (const bool reference : {true, false}) {
      curve.anchor = reference ? "" : "cell";
      const CurveFrame frame = frame_of({curve}, "loss_over_log_n", 10);
      ASSERT_TRUE(std::isfinite(frame.high - frame.low) && frame.high > frame.low) << low << " " << high;
    }
  });
}

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

/// Puts `next()` for every figure of a document: objects of a value and its bits, and numbers of curves.
void replace_figures(Json& json, const std::function<double()>& next) {
  if (json.is_object() && json.size() == 2 && json.contains("value") && json.contains("bits")) {
    const double value = next();
    char bits[17];
    std::snprintf(bits, sizeof bits, "%016llx",
                  static_cast<unsigned long long>(std::bit_cast<uint64_t>(value)));
    json = {{"value", number(value)}, {"bits", bits}};
    return;
  }
  if (json.is_number_float()) {
    json = number(next());
    return;
  }
  if (!json.is_structured()) return;
  for (auto& item : json) replace_figures(item, next);
}

const std::vector<Results (*)()> kFixtures{outcome_results,     mechanism_results,
                                           convergence_results, sequential_results};

void expect_drawn(const Results& results, const std::string& what) {
  const std::string page = html_report(results);
  EXPECT_LT(page.size(), 8u << 20) << what;
  // Inside attributes that place something, no word is a number to a browser.
  for (const char* attribute : {" x=\"", " y=\"", " x1=\"", " x2=\"", " y1=\"", " y2=\"", " cx=\"", " cy=\"",
                                " width=\"", " height=\"", " d=\"", " viewBox=\""}) {
    const std::string_view opening = attribute;
    for (std::size_t at = page.find(opening); at != std::string::npos; at = page.find(opening, at + 1)) {
      const std::size_t begin = at + opening.size();
      const std::string_view value = std::string_view(page).substr(begin, page.find('"', begin) - begin);
      EXPECT_TRUE(value.find("nan") == value.npos && value.find("inf") == value.npos)
          << what << attribute << value;
    }
  }
  markdown_summary(results);
  junit_report(results);
  terminal_table(results, false, 100);
}

class AnyFigures : public testing::TestWithParam<double> {};

TEST_P(AnyFigures, AreDrawnInEveryFormat) {
  for (std::size_t i = 0; i < kFixtures.size(); ++i) {
    const Json whole = Json::parse(results_to_json(kFixtures[i]()));
    int turn = 0;
    const double value = GetParam();
    const std::vector<std::pair<std::string, std::function<double()>>> fills{
        {"all", [&] { return value; }},
        {"one last place apart", [&] { return turn++ % 2 == 0 ? value : std::nextafter(value, kInf); }},
        {"both signs", [&] { return turn++ % 2 == 0 ? value : -value; }},
        {"some", [&] { return turn++ % 3 == 0 ? value : 0.5; }},
    };
    // In a slice each fixture takes one of the fills, told by the value's bits.
    const auto bits = std::bit_cast<uint64_t>(value);
    const std::size_t only = support::whole() ? fills.size() : (i + (bits ^ bits >> 52)) % fills.size();
    for (std::size_t f = 0; f < fills.size(); ++f) {
      if (only < fills.size() && f != only) continue;
      const auto& [name, next] = fills[f];
      Json document = whole;
      replace_figures(document, next);
      seal(document);
      std::optional<Results> results;
      try {
        results = results_from_json(document.dump(), "r");
      } catch (const std::runtime_error&) {
        continue;  // what the reader refuses nobody draws
      }
      expect_drawn(*results, "fixture " + std::to_string(i) + ", " + name + ", " + std::to_string(value));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranges, AnyFigures,
                         testing::Values(0.0, kTiny, 1e-310, 1e-17, 1.0, 3.1780538303479458, -1e15, 1e17,
                                         1e300, kMax, -kMax, kInf, kNan));

// A model that learns nothing in float64: its loss turns in the last place, and nothing else.
TEST(CurvePanels, DrawALossThatTurnsInTheLastPlace) {
  Results results = outcome_results();
  const double at = 1.0, next = std::nextafter(at, 2.0);
  const auto flatten = [&](std::vector<CurveBand>& bands) {
    for (CurveBand& band : bands) {
      for (std::size_t i = 0; i < band.median.size(); ++i) {
        band.median[i] = i % 2 == 0 ? at : next;
        band.low[i] = at, band.high[i] = next;
      }
    }
  };
  for (CellResult& cell : results.cells) flatten(cell.curves);
  for (ReferenceResult& reference : results.references) flatten(reference.curves);
  expect_drawn(results, "flat");
}

}  // namespace
}  // namespace lockstep
