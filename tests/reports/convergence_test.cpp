#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <sstream>
#include <string_view>

#include "harness/answer/results/words.h"
#include "harness/base/json.h"
#include "reports/format.h"
#include "reports/headline.h"
#include "reports/html/parts.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/words.h"
#include "tests/support/results_fixture.h"
#include "tests/support/whole.h"

// What the report of a convergence comparison answers, and what it leaves out where there is nothing to say.

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string text_of(const Results& results, const std::string& question) {
  for (const Answer& answer : answers_of(results)) {
    if (answer.question == question) return answer.text;
  }
  return "";
}

TEST(AnswerGrid, IsNoneWhereTheMatrixHasNoProduct) {
  EXPECT_FALSE(grid_of(outcome_results()));
  EXPECT_FALSE(grid_of(mechanism_results()));
  Results holes = convergence_results();
  std::erase_if(holes.cells, [](const CellResult& c) { return c.scenario.starts_with("3x8 l"); });
  EXPECT_TRUE(grid_of(holes)) << "two of eighteen places may be empty";
  std::erase_if(holes.cells, [](const CellResult& c) { return c.scenario.starts_with("4x6 l"); });
  EXPECT_FALSE(grid_of(holes));
  EXPECT_THAT(html_report(outcome_results()), Not(HasSubstr("id=\"grid\"")));
}

TEST(AnswerGrid, NamesAxesThatAreNoLayouts) {
  Results r = convergence_results();
  for (CellResult& cell : r.cells) {
    for (auto& [key, value] : cell.settings) {
      if (key == "layout") key = "optimizer";
    }
    cell.reference = "1x24 global";
  }
  const auto grid = grid_of(r);
  ASSERT_TRUE(grid);
  EXPECT_EQ(grid->row_axis, "optimizer");
  EXPECT_EQ(held_against(r, *grid), "1x24 global");
}

TEST(Headline, NamesAFailedCellAsSuch) {
  Results r = convergence_results();
  r.cells[4].verdict = VerdictKind::failed;
  r.cells[4].failure = Failure{"run", FailureKind::died, 1, 7, "all_reduce", "killed by signal 9", {}};
  EXPECT_THAT(headline_of(r), Contains(HasSubstr("2x12 failed")));
  EXPECT_THAT(headline_of(convergence_results()), Not(Contains(HasSubstr("failed"))));
}

TEST(Headline, SaysWhetherTheMatrixCanTell) {
  Results r = convergence_results();
  Results all = r;
  CellResult control = *std::ranges::find_if(r.cells, &CellResult::power_control);
  control.scenario = "8x3 layer lr_scale=0.125";
  control.reference = "1x24 layer";
  all.cells.push_back(control);
  EXPECT_THAT(text_of(all, "Can this matrix detect a difference?"), HasSubstr("Yes: 3 power controls were found to differ"));
  for (CellResult& cell : r.cells) {
    if (cell.scenario == "8x3 global lr_scale=0.125") cell.outcome->verdict = VerdictKind::equivalent;
  }
  EXPECT_THAT(text_of(r, "Can this matrix detect a difference?"), HasSubstr("No: 8x3 global lr_scale=0.125"));
  std::erase_if(r.cells, [](const CellResult& cell) { return cell.power_control; });
  EXPECT_THAT(text_of(r, "Can this matrix detect a difference?"), HasSubstr("Unknown: it has no power control."));
}

TEST(Headline, ClaimsAllAtOnceOnlyWhereAllAreEquivalent) {
  Results r = convergence_results();
  EXPECT_THAT(text_of(r, "How sure?"), Not(HasSubstr("needs no correction")));
  for (CellResult& cell : r.cells) {
    if (is_judged(cell) && !cell.power_control) cell.verdict = VerdictKind::equivalent;
  }
  EXPECT_THAT(text_of(r, "How sure?"), HasSubstr("needs no correction"));
  EXPECT_EQ(text_of(r, "Why not?"), "");
  for (CellResult& cell : r.cells) {
    if (!grid_of(r)->holds(cell) || cell.anchor) continue;
    cell.verdict = VerdictKind::failed;
    cell.outcome.reset();
    break;
  }
  EXPECT_THAT(text_of(r, "How sure?"), Not(HasSubstr("needs no correction"))) << "a cell that failed";
}

std::string sure_of(const Declaration& declaration) {
  Results r = convergence_results();
  r.declaration = declaration;
  return text_of(r, "How sure?");
}

TEST(Headline, SaysWhenTheMarginWasDeclaredByTheRecordAlone) {
  EXPECT_THAT(sure_of({35, 35, 0, {}}), HasSubstr("24-way accuracy, declared before anything ran; "));
  const std::string changed = sure_of({35, 0, 35, {{"margin", "0.03", "0.05", 35}}});
  EXPECT_THAT(changed, HasSubstr(", changed after the runs (margin was 0.03 when they were planned); "));
  EXPECT_THAT(changed, Not(HasSubstr("before anything ran")));
  EXPECT_THAT(sure_of({70, 35, 35, {{"margin", "0.03", "0.05", 35}, {"metric", "accuracy_256", "accuracy_24", 35}}}),
              HasSubstr("changed after 35 of 70 runs (margin was 0.03 and metric was accuracy_256 when they were "
                        "planned)"));
  EXPECT_THAT(sure_of({70, 0, 35, {{"margin", "0.03", "0.05", 35}}}), HasSubstr("; unknown for 35 of 70 runs"));
  EXPECT_THAT(sure_of({70, 60, 0, {}}), HasSubstr("declared before 60 of 70 runs; unknown for the others"));
  Results unknown = convergence_results();
  unknown.declaration.reset();
  EXPECT_THAT(text_of(unknown, "How sure?"), HasSubstr("time of declaration unknown"));
}

TEST(Declaration, StandsInEveryReportOnceItWasChanged) {
  Results r = outcome_results();
  r.declaration = Declaration{35, 0, 35, {{"margin", "0.02", "0.03", 35}}};
  const std::string words = "changed after the runs (margin was 0.02 when they were planned)";
  for (const std::string& text : {terminal_table(r, false, 0), html_report(r), junit_report(r)})
    EXPECT_THAT(text, HasSubstr(words));
  EXPECT_THAT(markdown_summary(r), HasSubstr("changed after the runs (margin was 0.02 when they were planned)"));
}

/// Cells that ended at looks of their own have n and level of their own: neither stands for the others.
TEST(Intervals, AreLabelledWhereCellsHaveTheirOwn) {
  Results r = convergence_results();
  for (CellResult& cell : r.cells) {
    if (cell.scenario != "8x3 local") continue;
    cell.outcome->n = 15;
    cell.outcome->primary.interval.level = 0.988;
  }
  EXPECT_THAT(markdown_summary(r), HasSubstr("| −0.094 ± 0.020 (n 15, 98.8 %) | ≠ divergent |"));
  EXPECT_THAT(terminal_table(r, false, 0),
              AllOf(HasSubstr("10 to 15 paired seeds"), HasSubstr("-0.094 ± 0.020 (n 10, 95 %)")));
  EXPECT_THAT(markdown_summary(r), HasSubstr("half of the interval at each"));
  EXPECT_THAT(html_report(r), HasSubstr("<span class=\"sub\">n 15, 98.8 %</span>"));
  EXPECT_THAT(html_report(convergence_results()), Not(HasSubstr("n 10, 95 %")));
}

TEST(ConvergencePage, SaysOfAStepAloneThatItIsAlone) {
  Results r = convergence_results();
  std::erase_if(r.cells, [](const CellResult& cell) { return cell.scenario != "8x3 global"; });
  CurveDifference& curve = r.cells[0].outcome->curves[0];
  curve.first_leaves = curve.first_beyond = -1;
  for (std::size_t i = 0; i < curve.steps.size(); ++i) {
    const bool there = curve.steps[i] == 50;
    curve.low[i] = there ? -0.2 : -0.01;
    curve.high[i] = there ? -0.1 : 0.01;
    if (there) curve.first_leaves = curve.first_beyond = 50;
  }
  EXPECT_THAT(html_report(r), AllOf(HasSubstr("wholly beyond at step 50 alone"), Not(HasSubstr("from step 50"))));
  for (std::size_t i = 0; i < curve.steps.size(); ++i) {
    if (curve.steps[i] > 50) curve.low[i] = -0.2, curve.high[i] = -0.1;
  }
  EXPECT_THAT(html_report(r), AllOf(HasSubstr("wholly beyond from step 50"), Not(HasSubstr("at step 50 alone"))));
}

TEST(ConvergencePage, GivesNoBoundsOfTargetsWhereTheResultsHaveNone) {
  Results old = convergence_results();
  for (CellResult& cell : old.cells) {
    if (!cell.outcome) continue;
    TargetReach& t = *cell.outcome->target;
    t.cell_interval.level = t.reference_interval.level = t.ratio_interval.level = 0;
    t.ratio_n = 0;
  }
  EXPECT_THAT(html_report(old), Not(HasSubstr("97.9 %: "))) << "results of a version that took none";
}

TEST(ConvergencePage, StaysBelowItsLimitWithEveryStepDrawn) {
  Results r = convergence_results();
  const auto fill = [](std::vector<CurveBand>& bands) {
    for (CurveBand& band : bands) {
      const CurveBand model = band;
      const auto last = model.steps.back();
      band = {model.metric, {}, {}, {}, {}};
      for (int i = 0; i < 400; ++i) {
        const auto at = static_cast<std::size_t>(i) * model.steps.size() / 400;
        band.steps.push_back(last * i / 399);
        band.median.push_back(model.median[at] + 0.001 * (i % 7));
        band.low.push_back(model.low[at] - 0.001 * (i % 5));
        band.high.push_back(model.high[at] + 0.001 * (i % 3));
      }
    }
  };
  for (ReferenceResult& reference : r.references) fill(reference.curves);
  for (CellResult& cell : r.cells) {
    fill(cell.curves);
    while (!cell.mechanism->forced.empty() && cell.mechanism->forced.size() < 10)
      cell.mechanism->forced.push_back(cell.mechanism->forced.front());
  }
  EXPECT_LE(html_report(r).size(), 700u * 1000);
}

TEST(ConvergencePage, StaysWellFormedWhereFiguresAreNoNumbers) {
  Results r = convergence_results();
  for (CellResult& cell : r.cells) {
    if (!cell.outcome) continue;
    cell.outcome->sd_upper = INFINITY;
    cell.outcome->power = cell.outcome->power_half = cell.outcome->p_holm = NAN;
    cell.outcome->primary.interval = {-INFINITY, INFINITY, 0.95};
    for (CurveDifference& curve : cell.outcome->curves)
      curve.low[1] = -INFINITY, curve.high[1] = NAN, curve.mean[1] = NAN;
    for (Estimate& estimate : cell.outcome->estimates) estimate.value = NAN;
    cell.outcome->target->reference_median = INFINITY;
    if (cell.noise_scale) cell.noise_scale->batch = INFINITY, cell.noise_scale->batch_at[2] = INFINITY;
  }
  r.growth[0].predicted_exponent = r.growth[0].measured_exponent = NAN;
  r.growth[0].rules[0].difference.mean = NAN;
  r.growth[0].rules[1].exponent = NAN;
  r.timing->rows[1].speed_up = r.timing->rows[1].bytes = r.timing->rows[1].communication_share = NAN;
  const std::string page = html_report(r);
  std::istringstream in(page);
  boost::property_tree::ptree tree;
  EXPECT_NO_THROW(boost::property_tree::read_xml(in, tree));
  for (const std::string wrong : {"=\"nan", "=\"inf", "=\"-inf", " nan", "-nan"})
    EXPECT_THAT(page, Not(HasSubstr(wrong)));
}

TEST(ConvergenceTerminal, HasARowForEachCell) {
  Results r = convergence_results();
  EXPECT_THAT(terminal_table(r, false, 0), HasSubstr("\n    2x12 global "));
  r.cells[3].as_expected = false;
  EXPECT_THAT(terminal_table(r, false, 0), HasSubstr("\n    ✗ 2x12 global "));
}

TEST(PushApart, LeavesLabelsThatHaveRoomWhereTheyAre) {
  EXPECT_EQ(push_apart({20, 60, 100}, {14, 14, 14}, 0, 200), (std::vector<double>{20, 60, 100}));
}

TEST(PushApart, SeparatesEqualLabelsAroundTheirPlace) {
  EXPECT_EQ(push_apart({50, 50, 50}, {10, 10, 10}, 0, 200), (std::vector<double>{40, 50, 60}));
}

TEST(PushApart, NeverOverlapsAndStaysInside) {
  const std::vector<double> wanted{1, 2, 3, 95, 96, 97, 98}, heights{14, 28, 14, 14, 14, 14, 14};
  const std::vector<double> placed = push_apart(wanted, heights, 0, 120);
  ASSERT_EQ(placed.size(), wanted.size());
  EXPECT_GE(placed.front() - heights.front() / 2, -1e-9);
  EXPECT_LE(placed.back() + heights.back() / 2, 120 + 1e-9);
  for (std::size_t i = 1; i < placed.size(); ++i) {
    EXPECT_GE(placed[i] - placed[i - 1], (heights[i] + heights[i - 1]) / 2 - 1e-9) << i;
  }
}

TEST(Thin, KeepsEndsAndExtremes) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 5000; ++i)
    points.push_back({double(i), i == 1234 ? 9.0 : i == 4321 ? -9.0 : 0.0, -1, 1});
  points[777].low = -50;
  const std::vector<PlotPoint> kept = thin(points, 100);
  EXPECT_LE(kept.size(), 300u);
  EXPECT_EQ(kept.front().x, 0);
  EXPECT_EQ(kept.back().x, 4999);
  const auto median = [](const PlotPoint& a, const PlotPoint& b) { return a.y < b.y; };
  EXPECT_EQ(std::max_element(kept.begin(), kept.end(), median)->y, 9);
  EXPECT_EQ(std::min_element(kept.begin(), kept.end(), median)->y, -9);
  EXPECT_TRUE(std::any_of(kept.begin(), kept.end(), [](const auto& p) { return p.low == -50; }));
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.x < b.x; }));
}

TEST(CurvesOf, LeavesOutWhatIsNoNumber) {
  Results r = outcome_results();
  r.cells.resize(1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  r.cells[0].curves = {{"loss_over_log_n", {0, 1, 2, 3}, {1, nan, 0.5, INFINITY}, {1, 1}, {}}};
  const std::vector<Curve> curves = curves_of(r, "loss_over_log_n");
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_TRUE(curves[0].is_reference());
  ASSERT_EQ(curves[1].points.size(), 2u);
  EXPECT_EQ(curves[1].points[1].x, 2);
  EXPECT_EQ(curves[1].points[1].low, 0.5);
}

TEST(FrameOf, ACellThatBlowsUpDoesNotFlattenTheOthers) {
  Results r = outcome_results();
  r.cells[1].curves[0].high.back() = 1e6;
  const CurveFrame frame = frame_of(curves_of(r, "loss_over_log_n"), "loss_over_log_n", 600);
  EXPECT_LT(frame.high, 3);
  ASSERT_TRUE(frame.off_high.has_value());
  EXPECT_EQ(*frame.off_high, 1e6);
}

Curve curve_of(int points, const std::function<double(int)>& value) {
  Curve curve;
  for (int i = 0; i < points; ++i) curve.points.push_back({static_cast<double>(i), value(i), value(i), value(i)});
  return curve;
}

TEST(FrameOf, ALongNoisyCurveIsSmoothedAndAShortOrSmoothOneIsNot) {
  const auto window_of = [](int points, double noise) {
    return frame_of({curve_of(points, [&](int i) { return 3 * std::exp(-3.0 * i / points) + (i % 2 ? noise : -noise); })}, "loss", 1).window;
  };
  EXPECT_EQ(window_of(100, 0.2), 5u);
  EXPECT_EQ(window_of(1000, 0.2), 21u);
  EXPECT_EQ(window_of(60, 0.2), 0u);
  EXPECT_EQ(window_of(100, 0), 0u);
}

TEST(FrameOf, IsLogarithmicWherePositiveValuesSpanMoreThanAFactorOf100) {
  const auto frame = [](double low) { return frame_of({curve_of(10, [&](int i) { return i == 0 ? low : i; })}, "no_chance", 1); };
  EXPECT_TRUE(frame(0.08).log);
  EXPECT_NEAR(frame(0.08).low, std::log10(0.08), 0.2);
  EXPECT_FALSE(frame(0.1).log);
  EXPECT_FALSE(frame(0).log);
  EXPECT_FALSE(frame(-1).log);
}

TEST(FrameOf, ChanceIsOfTheRunsDataWhereTheseSayIt) {
  Results r = outcome_results();
  EXPECT_DOUBLE_EQ(frame_of(curves_of(r, "accuracy_24"), "accuracy_24", 600).chance, 1.0 / 24);
  for (CurveBand& band : r.references[0].curves) band.chance = 1.0 / 9;
  EXPECT_DOUBLE_EQ(frame_of(curves_of(r, "accuracy_24"), "accuracy_24", 600).chance, 1.0 / 9);
}

TEST(FrameOf, NothingIsOffScaleInAnOrdinaryMatrix) {
  const CurveFrame frame = frame_of(curves_of(outcome_results(), "accuracy_24"), "accuracy_24", 600);
  EXPECT_FALSE(frame.off_high.has_value());
  EXPECT_FALSE(frame.off_low.has_value());
  EXPECT_EQ(frame.low, 0);
}

// Axes and drawings over ranges that no sane run has: equal, one last place, denormal, as large as numbers
// get, and none at all.

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
    std::erase_if(curve.points, [](const PlotPoint& p) {
      return !std::isfinite(p.y) || !std::isfinite(p.low) || !std::isfinite(p.high);
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
