#include "reports/text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const std::vector<std::vector<std::string>> kRows = {{"case", "every bit the same", "refused"},
                                                     {"a rank ends while it writes", "12", "·"},
                                                     {"a rank ends while it reads", "3", "450"}};

TEST(TextTable, BreaksHeadsBeforeItCutsAnything) {
  EXPECT_EQ(aligned_columns(kRows, " ", 58),
            " case                         every bit the same  refused\n"
            " a rank ends while it writes                  12        ·\n"
            " a rank ends while it reads                    3      450\n");
  EXPECT_EQ(aligned_columns(kRows, " ", 46),
            " case                         every  refused\n"
            "                                bit\n"
            "                                the\n"
            "                               same\n"
            " a rank ends while it writes     12        ·\n"
            " a rank ends while it reads       3      450\n");
}

TEST(TextTable, SetsWhatFindsNoRoomBelow) {
  EXPECT_EQ(aligned_columns(kRows, " ", 24),
            " case            every\n"
            "                   bit\n"
            "                   the\n"
            "                  same\n"
            " a rank ends        12\n"
            "   while it\n"
            "   writes\n"
            " a rank ends         3\n"
            "   while it\n"
            "   reads\n"
            " case            refused\n"
            " a rank ends           ·\n"
            "   while it\n"
            "   writes\n"
            " a rank ends         450\n"
            "   while it\n"
            "   reads\n");
}

TEST(TextTable, HasNoLineOfEmptyHeads) {
  EXPECT_EQ(aligned_columns({{"", ""}, {"a", "10"}, {"b", "2"}}, " ", 80), " a  10\n b   2\n");
}

TEST(TextTable, StaysWithinAnyWidthAndKeepsEveryColumn) {
  std::vector<std::vector<std::string>> rows(31, std::vector<std::string>(12, "123456"));
  for (std::size_t i = 0; i < 12; ++i) rows[0][i] = "column " + std::to_string(i);
  for (int width = kNarrowestWidth; width < 120; ++width) {
    const std::string text = aligned_columns(rows, "  ", width);
    for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      EXPECT_LE(display_width(text.substr(begin, end - begin)), width);
    EXPECT_NE(text.find("11"), std::string::npos) << width;
    EXPECT_EQ(text.find("…"), std::string::npos) << width;
  }
}

TEST(TextTable, TakesEightyColumnsWhereNobodySaysHowManyThereAre) {
  EXPECT_EQ(table_width(0), 80);
  EXPECT_EQ(table_width(132), 132);
  EXPECT_EQ(table_width(10), kNarrowestWidth);
}

}  // namespace
}  // namespace lockstep
