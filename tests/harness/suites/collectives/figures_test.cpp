#include "harness/suites/collectives/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/suites/collectives/collectives.h"
#include "tests/support/suite_run.h"

namespace lockstep {
namespace {

using collectives::bus_factor;
using collectives::Row;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(CollectiveFigures, ReckonTheBusAsNcclTestsDo) {
  EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 8), 2 * 7.0 / 8);
  EXPECT_DOUBLE_EQ(bus_factor("all_gather", 8), 7.0 / 8);
  EXPECT_DOUBLE_EQ(bus_factor("reduce_scatter", 4), 3.0 / 4);
  EXPECT_DOUBLE_EQ(bus_factor("all_to_all", 4), 3.0 / 4);
  EXPECT_DOUBLE_EQ(bus_factor("broadcast", 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor("reduce", 4), 1);
  const Row row{"all_reduce", 4, 1'000'000, 250'000, 1e-3, 0, ""};
  EXPECT_DOUBLE_EQ(row.algbw(), 1);
  EXPECT_DOUBLE_EQ(row.busbw(), 1.5);
}

TEST(CollectiveFigures, StandInTheColumnsOfNcclTests) {
  const std::vector<Row> rows{{"all_reduce", 4, 1'000'000, 250'000, 1e-3, 0, ""}, {"broadcast", 2, 8, 2, 5e-6, 3, ""},
                              {"gather", 2, 8, 2, 0, 0, "not offered"}};
  EXPECT_EQ(collectives::table(rows),
            "collective\tranks\tsize (B)\tcount\ttype\tredop\troot\ttime (us)\talgbw (GB/s)\tbusbw (GB/s)\t#wrong\n"
            "all_reduce\t4\t1000000\t250000\tfloat\tsum\t-1\t1000.00\t1.0000\t1.5000\t0\n"
            "broadcast\t2\t8\t2\tfloat\tnone\t1\t5.00\t0.0016\t0.0016\t3\n"
            "gather\t2\t8\t2\tfloat\tnone\t1\trefused: not offered\n");
}

std::vector<Row> some_rows() {
  return {{"all_reduce", 2, 8, 2, 30e-6, 0, ""}, {"all_reduce", 2, 8'000'000, 2'000'000, 4e-3, 0, ""}, {"all_reduce", 4, 16, 4, 61e-6, 0, ""},
          {"all_reduce", 4, 8'000'000, 2'000'000, 8e-3, 5, ""}, {"gather", 2, 8, 2, 0, 0, "not offered"}, {"barrier", 2, 0, 2, 20e-6, 0, ""}};
}

TEST(CollectiveFigures, TellEachCollectiveInALineAndEverySizeInATable) {
  const std::vector<SuiteTable> tables = collectives::tables(some_rows());
  ASSERT_EQ(tables.size(), 4U);
  ASSERT_EQ(tables[0].rows.size(), 3U);
  EXPECT_THAT(tables[0].rows[0].cells, ElementsAre("all_reduce", "30 us · 2 GB/s", "61 us · 1.5 GB/s", "5"));
  EXPECT_EQ(tables[0].rows[0].verdict, CaseVerdict::fault);
  EXPECT_THAT(tables[0].rows[1].cells, ElementsAre("gather", "refused", "", "0"));
  EXPECT_EQ(tables[0].rows[1].verdict, CaseVerdict::undecided);
  EXPECT_THAT(tables[0].rows[2].cells, ElementsAre("barrier", "20 us", "", "0"));
  EXPECT_EQ(tables[0].rows[2].verdict, CaseVerdict::good);
  std::vector<std::string> heads;
  for (const TableColumn& column : tables[1].columns) heads.push_back(column.head);
  EXPECT_THAT(heads, ElementsAre("ranks", "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"));
  EXPECT_TRUE(tables[1].folded);
  EXPECT_THAT(tables[1].rows[3].cells, ElementsAre("4", "8000000", "2000000", "float", "sum", "-1", "8000.00", "1.0000", "1.5000", "5"));
  EXPECT_EQ(tables[1].rows[3].verdict, CaseVerdict::fault);
  EXPECT_EQ(tables[1].rows[0].verdict, CaseVerdict::good);
  EXPECT_THAT(tables[2].rows[0].cells, ElementsAre("2", "8", "2", "float", "none", "1", "refused", "", "", ""));
  EXPECT_TRUE(collectives::tables({}).empty());
}

TEST(CollectiveFigures, DrawALineForEachNumberOfRanks) {
  const std::vector<SuiteChart> charts = collectives::charts(some_rows());
  ASSERT_EQ(charts.size(), 2U);
  // Neither a barrier, which has no size, nor what was refused.
  ASSERT_EQ(charts[0].panels.size(), 1U);
  ASSERT_EQ(charts[0].panels[0].series.size(), 2U);
  const ChartSeries& of_four = charts[0].panels[0].series[1];
  EXPECT_EQ(of_four.name, "4 ranks");
  EXPECT_EQ(of_four.verdict, CaseVerdict::fault);
  EXPECT_DOUBLE_EQ(of_four.points[1].x, 8e6);
  EXPECT_DOUBLE_EQ(of_four.points[1].y, 1.5);
  EXPECT_DOUBLE_EQ(charts[1].panels[0].series[0].points[0].y, 30);
  EXPECT_TRUE(collectives::charts({}).empty());
}

TEST(CollectivesConfig, RefusesWhatItDoesNotKnow) {
  const auto problem = [](const std::string& section) {
    return support::problem_of(collectives_suite(), "name: x\nlaboratory: collectives\ncollectives: {" + section + "}\n");
  };
  EXPECT_THAT(problem("most_rank: 3"), AllOf(HasSubstr("tried.yaml:3:15"), HasSubstr("most_ranks")));
  EXPECT_THAT(problem("least_bytes: 64, most_bytes: 8"), HasSubstr("least_bytes 64 is more than collectives.most_bytes 8"));
}

}  // namespace
}  // namespace lockstep
