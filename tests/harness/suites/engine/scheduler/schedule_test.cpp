// Families of schedules, played by processes that are made up.

#include "harness/suites/engine/scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep::scheduler {
namespace {

using testing::ElementsAre;

/// "abc ab soon": order, who stops and who goes on, how.
std::string in_short(const Family& family) {
  std::string text;
  for (const int process : family.order) text += static_cast<char>('a' + process);
  text += std::string(" ") + static_cast<char>('a' + family.stops) + static_cast<char>('a' + family.goes_on);
  return text + (family.soon ? " soon" : "") + (family.doubles ? " doubles" : "");
}

TEST(Families, OfTwoStopTheFirstAndThenTheOther) {
  const std::vector<Family> all = families_of(2);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(in_short(all[0]), "ab ab doubles");
  EXPECT_EQ(in_short(all[1]), "ba ba doubles");
}

TEST(Families, OfThreeAreThreeForEachOrder) {
  const std::vector<Family> all = families_of(3);
  ASSERT_EQ(all.size(), 18u);
  EXPECT_EQ(in_short(all[0]), "abc ab");
  EXPECT_EQ(in_short(all[1]), "abc ab soon");
  EXPECT_EQ(in_short(all[2]), "abc bc");
  EXPECT_EQ(in_short(all[17]), "cba ba");
}

/// What comes of processes of so many operations each.
struct End {
  std::vector<bool> preempted;
};
struct Played {
  std::vector<std::string> seen;
  bool there = false;
};
Played played(bool doubles, int64_t at, int64_t operations, std::size_t most = 100) {
  Played done;
  const auto play = [&](const Schedule& schedule) {
    End end;
    for (const Preemption& each : schedule.preemptions) end.preempted.push_back(each.at < operations);
    return end;
  };
  done.there = play_family({{0, 1}, 0, 1, false, doubles}, at, play, [&](const Schedule& schedule, const End&, bool is_double) {
    std::string text = is_double ? "double" : "single";
    for (const Preemption& each : schedule.preemptions)
      text += " " + std::to_string(each.process) + "@" + std::to_string(each.at) + ">" + std::to_string(each.to);
    done.seen.push_back(text);
    return done.seen.size() < most;
  });
  return done;
}

TEST(PlayFamily, PlaysTheSingleOneAndAllDoubleOnes) {
  EXPECT_THAT(played(false, 1, 2).seen, ElementsAre("single 0@1>1"));
  EXPECT_THAT(played(true, 1, 2).seen, ElementsAre("single 0@1>1", "double 0@1>1 1@0>0", "double 0@1>1 1@1>0"));
  EXPECT_TRUE(played(true, 1, 2).there);
}

TEST(PlayFamily, EndsWhereThereIsNoSuchOperationAndWhereItIsTold) {
  EXPECT_FALSE(played(true, 2, 2).there);
  EXPECT_THAT(played(true, 2, 2).seen, ElementsAre());
  EXPECT_THAT(played(true, 0, 9, 1).seen, ElementsAre("single 0@0>1"));
  EXPECT_EQ(played(true, 0, 9, 3).seen.size(), 3u);
}

}  // namespace
}  // namespace lockstep::scheduler
