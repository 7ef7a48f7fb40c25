#include "harness/lib/flight/judge.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/lib/flight/dump.h"
#include "tests/support/temp_folder.h"

namespace lockstep::flight {
namespace {

/// Three ranks, five sums each in "data" and one pass in "gradients", all left.
Records flight_of_three() {
  Records records;
  for (int rank = 0; rank < 3; ++rank) {
    Recorded record{rank, 3};
    for (uint64_t i = 0; i < 6; ++i) {
      Entry entry;
      entry.id = i;
      entry.group = i == 3 ? "gradients" : "data";
      entry.sequence = i < 3 ? i + 1 : i == 3 ? 1 : i;
      entry.op = "all_reduce";
      entry.tag = "gradients of w";
      entry.dtype = "Float";
      entry.shape = {4, 3};
      entry.step = static_cast<int64_t>(i / 2);
      entry.state = State::completed;
      record.entries.push_back(std::move(entry));
    }
    records.read.push_back(std::move(record));
  }
  return records;
}

Entry& fifth(Records& records, int rank) { return records.read[static_cast<std::size_t>(rank)].entries[4]; }

TEST(CompareFlights, IsSilentOnEqualOnes) {
  const FlightComparison comparison = compare_flights(flight_of_three(), flight_of_three());
  EXPECT_FALSE(comparison.first);
  EXPECT_EQ(comparison.compared, 18U);
}

TEST(CompareFlights, NamesWhatDiffersAndWhere) {
  struct Case {
    DivergenceKind kind;
    void (*plant)(Entry&);
  };
  for (const Case& each : {Case{DivergenceKind::operation, [](Entry& e) { e.op = "all_gather"; }}, Case{DivergenceKind::type, [](Entry& e) { e.dtype = "Double"; }},
                           Case{DivergenceKind::size, [](Entry& e) { e.shape = {4, 2}; }}, Case{DivergenceKind::root, [](Entry& e) { e.root = 1; }},
                           Case{DivergenceKind::purpose, [](Entry& e) { e.tag = "b"; }}, Case{DivergenceKind::state, [](Entry& e) { e.state = State::started; }}}) {
    Records b = flight_of_three();
    each.plant(fifth(b, 1));
    const FlightComparison comparison = compare_flights(flight_of_three(), b);
    ASSERT_TRUE(comparison.first) << each.kind;
    EXPECT_EQ(comparison.first->kind, each.kind);
    EXPECT_EQ(comparison.first->rank, 1) << each.kind;
    EXPECT_EQ(comparison.first->group, "data") << each.kind;
    EXPECT_EQ(comparison.first->sequence, 4U) << each.kind;
    EXPECT_EQ(comparison.first->step, 2) << each.kind;
  }
}

TEST(CompareFlights, NamesTheRankThatLacksACallBeforeThoseThatWaitForIt) {
  Records b = flight_of_three();
  b.read[1].entries.resize(4);
  for (const int rank : {0, 2}) {
    fifth(b, rank).state = State::started;
    b.read[static_cast<std::size_t>(rank)].entries.resize(5);
  }
  const auto found = compare_flights(flight_of_three(), b).first;
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, DivergenceKind::missing_call);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->sequence, 4U);
  EXPECT_EQ(compare_flights(b, flight_of_three()).first->kind, DivergenceKind::extra_call);
}

TEST(CompareFlights, LeavesOutWhatARingHasWrittenOver) {
  Records b = flight_of_three();
  for (Recorded& record : b.read) {
    record.entries.erase(record.entries.begin());
    record.lost = 1;
  }
  const FlightComparison comparison = compare_flights(flight_of_three(), b);
  EXPECT_FALSE(comparison.first);
  EXPECT_EQ(comparison.compared, 15U);
}

TEST(CompareFlights, SaysWhoHasARecordOnOneSideAlone) {
  Records b = flight_of_three();
  b.read.erase(b.read.begin() + 2);
  EXPECT_EQ(compare_flights(flight_of_three(), b).without_b, std::vector<int>{2});
  EXPECT_EQ(compare_flights(b, flight_of_three()).without_a, std::vector<int>{2});
}

TEST(CompareFlights, ReadsPytorchsOwnRecords) {
  const std::string python = LOCKSTEP_PYTHON;
  if (python.empty()) GTEST_SKIP() << "no Python with the torch package of this LibTorch";
  const TempFolder folder;
  const std::string command = python + " -B " LOCKSTEP_PYTORCH_FLIGHT " " + folder.path() + " good wrong_size missing 2>/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const auto good = read_records(folder / "good");
  const FlightComparison same = compare_flights(good, good);
  EXPECT_EQ(same.compared, 12U);
  EXPECT_FALSE(same.first);
  const auto size = compare_flights(good, read_records(folder / "wrong_size")).first;
  ASSERT_TRUE(size);
  EXPECT_EQ(size->kind, DivergenceKind::size);
  EXPECT_EQ(size->rank, 1);
  EXPECT_EQ(size->sequence, 3U);
  // Its fourth sum was its third: the fourth number is what it lacks.
  const auto missing = compare_flights(good, read_records(folder / "missing")).first;
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->kind, DivergenceKind::missing_call);
  EXPECT_EQ(missing->rank, 1);
  EXPECT_EQ(missing->sequence, 4U);
}

}  // namespace
}  // namespace lockstep::flight
