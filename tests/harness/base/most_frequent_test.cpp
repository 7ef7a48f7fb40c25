#include "harness/base/numbers.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

TEST(MostFrequent, IsWhatOccursMostOften) {
  EXPECT_EQ(most_frequent(std::vector<std::string>{"a", "b", "c", "b"}), "b");
  EXPECT_EQ(most_frequent(std::vector<int>{7}), 7);
}

TEST(MostFrequent, IsTheFirstOfADraw) {
  const std::vector<std::string> texts{"c", "b", "a", "b", "c"};
  EXPECT_EQ(&most_frequent(texts), &texts[0]);
  EXPECT_EQ(most_frequent(std::vector<int>{3, 1, 2}), 3);
  EXPECT_EQ(most_frequent(std::vector<int>{9, 1, 2, 2, 1}), 1);
}

TEST(MostFrequent, IsTheFirstOfMoreThanHalf) {
  const std::vector<std::string> texts{"a", "b", "c", "b", "b"};
  EXPECT_EQ(&most_frequent(texts), &texts[1]);
  std::vector<int> many(4096, 3);
  many[0] = 2;
  EXPECT_EQ(&most_frequent(many), &many[1]);
}

TEST(MostFrequent, LooksAtAPartOfEach) {
  const std::vector<std::pair<int, int>> pairs{{0, 5}, {1, 6}, {2, 6}};
  EXPECT_EQ(most_frequent(pairs, &std::pair<int, int>::second).first, 1);
}

}  // namespace
}  // namespace lockstep
