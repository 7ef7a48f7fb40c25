#include "harness/collectives/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/collectives/collectives.h"
#include "tests/support/laboratory_run.h"

namespace lockstep {
namespace {

using collectives::bus_factor;
using collectives::Row;
using testing::AllOf;
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
  EXPECT_EQ(collectives::in_words({rows.data(), 1}), "976.6 KiB: 1.00 ms; 0 wrong");
  EXPECT_EQ(collectives::in_words({rows.data() + 1, 1}), "8 B: 5.0 us; 3 elements wrong");
}

TEST(CollectivesConfig, RefusesWhatItDoesNotKnow) {
  const auto problem = [](const std::string& section) {
    return support::problem_of(collectives_laboratory(), "name: x\nlaboratory: collectives\ncollectives: {" + section + "}\n");
  };
  EXPECT_THAT(problem("most_rank: 3"), AllOf(HasSubstr("tried.yaml:3:15"), HasSubstr("most_ranks")));
  EXPECT_THAT(problem("least_bytes: 64, most_bytes: 8"), HasSubstr("least_bytes 64 is more than collectives.most_bytes 8"));
}

}  // namespace
}  // namespace lockstep
