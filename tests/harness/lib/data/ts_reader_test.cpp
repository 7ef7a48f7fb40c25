#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/base/errors.h"
#include "harness/lib/data/series.h"
#include "scenarios/energy/dataset.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kHeader =
    "# two channels, three steps\n"
    "@problemName Tiny\n"
    "@timeStamps false\n"
    "@univariate false\n"
    "@dimensions 2\n"
    "@equalLength true\n"
    "@seriesLength 3\n"
    "@classLabel true Walking Running\n"
    "@data\n";  // series start on line 10

std::vector<ConfigProblem> problems_of(const std::string& text) {
  try {
    parse_ts(text, "tiny.ts");
  } catch (const ConfigError& error) {
    return error.problems();
  }
  return {};
}

std::string only_problem(const std::string& text) {
  const std::vector<ConfigProblem> problems = problems_of(text);
  if (problems.size() != 1) return "problems: " + std::to_string(problems.size());
  return problems[0].text();
}

TEST(TsReader, ReadsSeriesWithTheChannelFastest) {
  const SeriesSet set = parse_ts(kHeader + "1,2,3:-4,5e-1,6.25:Walking\n7,8,9:10,11,12:Running\n", "tiny.ts");
  EXPECT_EQ(set.channels, 2);
  ASSERT_EQ(set.series.size(), 2u);
  EXPECT_THAT(set.series[0], ElementsAre(1, -4, 2, 0.5f, 3, 6.25f));
  EXPECT_THAT(set.series[1], ElementsAre(7, 10, 8, 11, 9, 12));
  EXPECT_THAT(set.labels, ElementsAre("Walking", "Running"));
  EXPECT_EQ(set.steps_of(0), 3);
}

TEST(TsReader, TakesHeadersInAnyCaseAndFreeSpace) {
  const SeriesSet set = parse_ts(
      "\xef\xbb\xbf@DIMENSIONS 2\r\n\r\n@classlabel TRUE  walking\r\n@Data\r\n # a comment\r\n 1 , +2 : 3, 4 "
      ": Walking \r\n",
      "tiny.ts");
  EXPECT_THAT(set.series[0], ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(set.labels, ElementsAre("walking"));
}

TEST(TsReader, TakesAWholeLastLineWithoutALineBreak) {
  EXPECT_EQ(parse_ts(kHeader + "1,2,3:4,5,6:Walking", "tiny.ts").series.size(), 1u);
}

TEST(TsReader, TakesUnlabelledAndUnequalSeries) {
  const SeriesSet set = parse_ts("@univariate true\n@classLabel false\n@data\n1,2,3\n4,5\n", "tiny.ts");
  EXPECT_EQ(set.channels, 1);
  EXPECT_EQ(set.steps_of(0), 3);
  EXPECT_EQ(set.steps_of(1), 2);
  EXPECT_TRUE(set.labels.empty());
}

TEST(TsReader, FindsTheDimensionsOfTheFirstSeries) {
  EXPECT_EQ(parse_ts("@classLabel true a\n@data\n1:2:3:a\n", "tiny.ts").channels, 3);
  EXPECT_THAT(
      only_problem("@classLabel true a\n@data\n1:2:3:a\n1:2:a\n"),
      HasSubstr("tiny.ts:4:1: the line has 3 fields separated by ':', but 3 dimensions and a class label"));
}

TEST(TsReader, RoundsValuesBelowTheSmallestFloatToZero) {
  EXPECT_THAT(parse_ts("@data\n1e-60,1e-40\n", "tiny.ts").series[0], ElementsAre(0.0f, 1e-40f));
}

TEST(TsReader, NamesTheTextThatIsNoNumber) {
  EXPECT_EQ(only_problem(kHeader + "1,2,3:4,5,6:Walking\n1,2,3:4,zebra,6:Walking\n"),
            "tiny.ts:11:9: \"zebra\" is not a number");
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,5 5,6:Walking\n"), HasSubstr("10:9: \"5 5\" is not a number"));
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,0x1f,6:Walking\n"), HasSubstr("\"0x1f\" is not a number"));
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,+-5,6:Walking\n"), HasSubstr("\"+-5\" is not a number"));
}

TEST(TsReader, RefusesMissingEmptyAndNonFiniteValues) {
  EXPECT_THAT(only_problem(kHeader + "1,?,3:4,5,6:Walking\n"),
              HasSubstr("tiny.ts:10:3: a value is missing (?)"));
  EXPECT_THAT(only_problem(kHeader + "1,,3:4,5,6:Walking\n"), HasSubstr("tiny.ts:10:3: a value is empty"));
  EXPECT_THAT(only_problem(kHeader + "1,NaN,3:4,5,6:Walking\n"),
              HasSubstr("10:3: \"NaN\" is not a finite number"));
  EXPECT_THAT(only_problem(kHeader + "1,-inf,3:4,5,6:Walking\n"),
              HasSubstr("\"-inf\" is not a finite number"));
  EXPECT_THAT(only_problem(kHeader + "1,1e39,3:4,5,6:Walking\n"),
              HasSubstr("\"1e39\" lies outside the range"));
  EXPECT_THAT(only_problem(kHeader + "1,1e999,3:4,5,6:Walking\n"),
              HasSubstr("\"1e999\" lies outside the range"));
}

TEST(TsReader, RefusesUnequalLengthsAndDimensions) {
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,5:Walking\n"),
              HasSubstr("10:1: dimension 2 has 2 steps, dimension 1 has 3"));
  EXPECT_THAT(only_problem(kHeader + "1,2:4,5:Walking\n"),
              HasSubstr("10:1: the series has 2 steps, but @seriesLength is 3"));
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,5,6:7,8,9:Walking\n"), HasSubstr("the line has 4 fields"));
}

TEST(TsReader, RefusesALabelThatNobodyDeclared) {
  EXPECT_EQ(only_problem(kHeader + "1,2,3:4,5,6:Resting\n"),
            "tiny.ts:10:13: the class \"Resting\" is not one of @classLabel's: Walking, Running");
}

TEST(TsReader, SaysWhenTheLastLineIsCutShort) {
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,5,6:Walk"), HasSubstr("is it cut short?"));
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,5,6:Walking\n1,2,3:4,5"), HasSubstr("is it cut short?"));
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,5,6:Walking\n1,2"), HasSubstr("tiny.ts:11:1:"));
  EXPECT_THAT(only_problem(kHeader), HasSubstr("no series follows @data: is the file cut short?"));
}

// Wherever the file is cut inside the series, the reader must notice; a whole series more or less is no cut
// that the format could show.
TEST(TsReader, NoticesACutAtEveryByteOfTheLastSeries) {
  const std::string head = kHeader + "1,2,3:4,5,6:Walking\n";
  const std::string whole = head + "11,12,13:14,15,16:Running";
  for (std::size_t length = head.size() + 1; length < whole.size(); ++length) {
    EXPECT_FALSE(problems_of(whole.substr(0, length)).empty())
        << whole.substr(head.size(), length - head.size());
  }
}

TEST(TsReader, RefusesFilesWithoutData) {
  EXPECT_EQ(only_problem(""), "tiny.ts: the file is empty");
  EXPECT_THAT(only_problem("@dimensions 2\n"), HasSubstr("tiny.ts:1:1: the file ends without @data"));
  EXPECT_THAT(only_problem("1,2,3\n"), HasSubstr("tiny.ts:1:1: data before @data"));
}

TEST(TsReader, RefusesHeadersThatItDoesNotUnderstand) {
  EXPECT_THAT(only_problem("@dimensoins 2\n@data\n1\n"),
              HasSubstr("1:1: unknown header \"@dimensoins\"; known are"));
  EXPECT_THAT(only_problem("@dimensions two\n@data\n1\n"),
              HasSubstr("1:13: @dimensions is a whole number from 1"));
  EXPECT_THAT(only_problem("@dimensions 0\n@data\n1\n"), HasSubstr("@dimensions is a whole number from 1"));
  EXPECT_THAT(only_problem("@timeStamps true\n@data\n1\n"), HasSubstr("1:13: series with time stamps"));
  EXPECT_THAT(only_problem("@dimensions 1\n@dimension 1\n@data\n1\n"),
              HasSubstr("2:1: \"@dimension\" stands twice"));
  EXPECT_THAT(only_problem("@classLabel true\n@data\n1:a\n"), HasSubstr("@classLabel true lists no class"));
  EXPECT_THAT(only_problem("@missing maybe\n@data\n1\n"),
              HasSubstr("@missing is true or false, not \"maybe\""));
  EXPECT_THAT(only_problem("@data\n1\n@dimensions 1\n"), HasSubstr("3:1: a header after @data"));
}

TEST(TsReader, CollectsProblemsAndStopsAtTwenty) {
  EXPECT_EQ(problems_of(kHeader + "1,x,3:4,y,6:Nobody\n1,2:3,4,5:Walking\n").size(), 4u);
  std::string many = kHeader;
  for (int i = 0; i < 100; ++i) many += "1,x,3:4,5,6:Walking\n";
  const std::vector<ConfigProblem> problems = problems_of(many);
  ASSERT_EQ(problems.size(), 21u);
  EXPECT_EQ(problems[19].line, 29);
  EXPECT_THAT(problems[20].message, HasSubstr("the first 20 problems"));
}

TEST(TsReader, ShowsForeignBytesHarmlessly) {
  EXPECT_THAT(only_problem(kHeader + "1,\x1b[31m,3:4,5,6:Walking\n"),
              HasSubstr("\"\\x1b[31m\" is not a number"));
  const std::string text = only_problem(kHeader + "1," + std::string(100, 'z') + ",3:4,5,6:Walking\n");
  EXPECT_THAT(text, HasSubstr("zzz…\" is not a number"));
  EXPECT_LT(text.size(), 80u);
}

TEST(TsReader, ShowsForeignClassLabelsHarmlessly) {
  std::string text = "@classLabel true a\x1b[2Jb";
  for (int i = 0; i < 40; ++i) text += " label" + std::to_string(i);
  EXPECT_THAT(only_problem(text + "\n@data\n1:nobody\n"),
              testing::AllOf(HasSubstr("a\\x1b[2Jb, label0"), HasSubstr("label10, …")));
}

TEST(TsReader, NamesAMissingFileAndAFolder) {
  try {
    read_data_file("/nowhere/a.ts");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/a.ts: cannot be read: No such file or directory"));
  }
  try {
    read_data_file("/");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/: is a folder"));
  }
}

}  // namespace
}  // namespace lockstep
