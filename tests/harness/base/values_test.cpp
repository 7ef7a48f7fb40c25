#include <boost/math/constants/constants.hpp>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/run_config.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::string nested(std::size_t levels, const std::string& open, const std::string& close) {
  std::string text, end;
  for (std::size_t i = 0; i < levels; ++i) text += open, end += close;
  return text + "1" + end;
}

std::string problem_of(const std::string& text) {
  JsonProblem problem;
  const bool discarded = parse_json(text, &problem).is_discarded();
  EXPECT_EQ(discarded, !problem.message.empty());
  return problem.text();
}

TEST(JsonText, ReadsWhatIsNestedUpToItsLimit) {
  EXPECT_EQ(problem_of(nested(kMostJsonDepth, "[", "]")), "");
  EXPECT_EQ(problem_of(nested(kMostJsonDepth + 1, "[", "]")),
            "nested deeper than 100 levels, at line 1, column 101");
  EXPECT_EQ(problem_of(nested(kMostJsonDepth + 1, "{\"a\":\n", "}")),
            "nested deeper than 100 levels, at line 101, column 1");
}

TEST(JsonText, CountsLevelsAndNotBrackets) {
  std::string wide = "[[]";
  for (int i = 0; i < 1000; ++i) wide += ",[{}]";
  EXPECT_EQ(problem_of(wide + "]"), "");
  EXPECT_EQ(problem_of("\"" + std::string(1000, '[') + "\""), "") << "brackets of a text";
  EXPECT_EQ(problem_of("\"\\\"" + std::string(1000, '{') + "\\\\\""), "")
      << "behind an escaped quotation mark";
}

TEST(JsonText, SurvivesAHundredThousandLevels) {
  for (const std::string open : {"[", "{\"a\":"}) {
    const std::string text = nested(100000, open, open == "[" ? "]" : "}");
    EXPECT_THAT(problem_of(text), HasSubstr("nested deeper than 100 levels"));
    EXPECT_THAT(problem_of(text.substr(0, text.size() / 2)), HasSubstr("nested deeper than 100 levels"));
    EXPECT_THROW(run_config_from_json(text, "run.json"), ConfigError);
  }
}

TEST(JsonText, SaysWhereItIsNoJson) {
  EXPECT_EQ(problem_of("{\n  \"a\" 3}"), "not JSON, or cut short, at line 2, column 7");
  EXPECT_EQ(problem_of("{\"a\": "), "not JSON, or cut short, at line 1, column 7");
  EXPECT_EQ(problem_of(""), "not JSON, or cut short, at line 1, column 1");
  EXPECT_THAT(problem_of("[1e999]"), HasSubstr("outside the range of a double"));
}

TEST(JsonText, NamesTheFileThatCannotBeRead) {
  const TempFolder folder;
  std::string problem;
  write_text(folder / "deep.json", nested(100000, "{\"a\":", "}"));
  EXPECT_FALSE(read_sealed(folder / "deep.json", problem));
  EXPECT_EQ(problem, "is damaged: nested deeper than 100 levels, at line 1, column 501");
  EXPECT_FALSE(read_sealed(folder.path(), problem));
  EXPECT_EQ(problem, "is a folder, not a file");
  nlohmann::json good = {{"a", 1}};
  seal(good);
  write_text(folder / "good.json", good.dump());
  EXPECT_EQ(read_sealed(folder / "good.json", problem)->at("a"), 1);
  EXPECT_EQ(problem, "");
}

TEST(JsonFields, AreOfTheTypeThatIsAskedForOrNamedWithTheirFile) {
  const nlohmann::json object = {{"n", 5}, {"big", uint64_t{1} << 40}, {"less", -1}, {"half", 0.5}, {"t", "x"}, {"yes", true}, {"list", {1, "x"}}, {"map", {{"a", "b"}}}, {"none", nullptr}};
  const JsonFields fields(object, "OUT/f.json");
  EXPECT_EQ(fields.at<int>("n"), 5);
  EXPECT_EQ(fields.value("n", 0.0), 5);
  EXPECT_EQ(fields.value("t", ""), "x");
  EXPECT_EQ(fields.value("not there", 7), 7);
  EXPECT_EQ((fields.at<std::map<std::string, std::string>>("map").at("a")), "b");
  EXPECT_EQ(fields.at<std::vector<nlohmann::json>>("list").size(), 2U);
  const auto refuses = [](const auto& read, const std::string& what) { EXPECT_THAT(read, testing::ThrowsMessage<ConfigError>(HasSubstr("OUT/f.json: " + what))) << what; };
  refuses([&] { fields.at<int>("not there"); }, "there is no 'not there'");
  refuses([&] { fields.at<int>("big"); }, "'big' is 1099511627776");
  refuses([&] { fields.at<uint64_t>("less"); }, "'less' is -1");
  refuses([&] { fields.value("half", 0); }, "'half' is 0.5");
  refuses([&] { fields.value("t", 0); }, "'t' is \"x\"");
  refuses([&] { fields.value("n", ""); }, "'n' is 5");
  refuses([&] { fields.value("n", false); }, "'n' is 5");
  refuses([&] { fields.value("none", 1); }, "'none' is null");
  refuses([&] { fields.value("list", std::vector<int>()); }, "'list' is [1,\"x\"]");
  refuses([&] { fields.at<std::vector<std::string>>("map"); }, "'map' is {\"a\":\"b\"}");
  const nlohmann::json none = nlohmann::json::array();
  EXPECT_EQ(JsonFields(none, "f").value("n", 3), 3);
}

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

/// Fifty digits in integer arithmetic: no function of the C library, of MKL or of LibTorch takes part.
using Exact = boost::multiprecision::cpp_bin_float_50;

Exact exact_normal(double radius, double angle) {
  const Exact length = sqrt(-2 * log(1 - Exact(radius)));
  return length * cos(2 * boost::math::constants::pi<Exact>() * Exact(angle));
}

/// Uniforms in [0, 1), multiples of 2^-bits, by the generator of Numerical Recipes.
class Uniforms {
 public:
  explicit Uniforms(int bits) : bits_(bits) {}
  double next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return std::ldexp(static_cast<double>(state_ >> (64 - bits_)), -bits_);
  }

 private:
  int bits_;
  uint64_t state_ = 20261121;
};

TEST(StandardNormal, IsTheExactOneUpToDoublesRounding) {
  Uniforms uniforms(53);
  for (int i = 0; i < 5000; ++i) {
    const double radius = uniforms.next(), angle = uniforms.next();
    const Exact exact = exact_normal(radius, angle);
    const double length = static_cast<double>(sqrt(-2 * log(1 - Exact(radius))));
    const double error = static_cast<double>(abs(Exact(standard_normal(radius, angle)) - exact));
    ASSERT_LE(error, 4e-16 * length) << radius << " " << angle;
  }
}

TEST(StandardNormal, HoldsAtTheEdges) {
  const double below_one = 1 - 0x1p-53;
  for (const double radius : {0x1p-53, 0x1p-24, 0.25, 0.5, 1 - 0x1p-24, below_one}) {
    for (const double angle : {0.0, 0x1p-53, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, below_one, 1.0}) {
      const double length = static_cast<double>(sqrt(-2 * log(1 - Exact(radius))));
      const double error =
          static_cast<double>(abs(Exact(standard_normal(radius, angle)) - exact_normal(radius, angle)));
      EXPECT_LE(error, 4e-16 * length) << radius << " " << angle;
    }
  }
  EXPECT_EQ(standard_normal(0, 0.3), 0);
  EXPECT_LT(standard_normal(below_one, 0), 8.6) << "the largest draw";
}

TEST(FillNormal, EveryDrawIsTheFloatNextToTheExactNumber) {
  Uniforms uniforms(24);
  std::vector<float> radius(4000), angle(radius.size()), out(radius.size());
  for (std::size_t i = 0; i < radius.size(); ++i) {
    radius[i] = static_cast<float>(uniforms.next());
    angle[i] = static_cast<float>(uniforms.next());
  }
  fill_normal(radius, angle, out);
  for (std::size_t i = 0; i < radius.size(); ++i) {
    ASSERT_EQ(out[i], static_cast<float>(exact_normal(radius[i], angle[i]))) << i;
  }
}

TEST(FillNormal, HasTheMomentsOfANormal) {
  Uniforms uniforms(24);
  std::vector<float> radius(1 << 18), angle(radius.size()), out(radius.size());
  for (std::size_t i = 0; i < radius.size(); ++i) {
    radius[i] = static_cast<float>(uniforms.next());
    angle[i] = static_cast<float>(uniforms.next());
  }
  fill_normal(radius, angle, out);
  double mean = 0, square = 0, fourth = 0, within_one = 0;
  for (const double x : out) {
    mean += x;
    square += x * x;
    fourth += x * x * x * x;
    within_one += std::abs(x) < 1 ? 1 : 0;
  }
  const auto n = static_cast<double>(out.size());
  EXPECT_NEAR(mean / n, 0, 4 / std::sqrt(n));
  EXPECT_NEAR(square / n, 1, 4 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n, 3, 4 * std::sqrt(96 / n));
  EXPECT_NEAR(within_one / n, 0.6826894921, 4 * std::sqrt(0.2167 / n));
}

// The small helpers of base that make texts of values.

using Words = std::vector<std::string>;

TEST(WordList, HasCommasAndOneWordBeforeTheLast) {
  EXPECT_EQ(join_words(Words{}), "");
  EXPECT_EQ(join_words(Words{"a"}), "a");
  EXPECT_EQ(join_words(Words{"a", "b"}), "a and b");
  EXPECT_EQ(join_words(Words{"a", "b", "c"}), "a, b and c");
  EXPECT_EQ(join_words(std::vector<std::string_view>{"a", "b", "c"}, "or"), "a, b or c");
  EXPECT_EQ(join_words(Words{"", "b", ""}), ", b and ");
}

TEST(Counted, SaysOneThingAndSeveral) {
  EXPECT_EQ(counted(1, "seed"), "1 seed");
  EXPECT_EQ(counted(0, "seed"), "0 seeds");
  EXPECT_EQ(counted(3, "paired seed"), "3 paired seeds");
}

TEST(Counted, PartsThousands) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(19980), "19,980");
  EXPECT_EQ(with_commas(1234567890), "1,234,567,890");
  EXPECT_EQ(with_commas(-123), "-123");
  EXPECT_EQ(with_commas(-1234), "-1,234");
}

TEST(Hex, HasSixteenDigitsAndReadsThemBack) {
  EXPECT_EQ(hex16(0), "0000000000000000");
  EXPECT_EQ(hex16(0xc0ffeeu), "0000000000c0ffee");
  for (const uint64_t value : {uint64_t{0}, uint64_t{0x123456789abcdef0}, ~uint64_t{0}})
    EXPECT_EQ(from_hex16(hex16(value)), value);
  for (const char* wrong : {"", "c0ffee", "0000000000c0ffeE", "0000000000c0ffe ", "0x00000000c0ffee",
                            "00000000000c0ffee", "-00000000000c0ff"}) {
    EXPECT_EQ(from_hex16(wrong), std::nullopt) << wrong;
  }
}

// The hashes that runs on disks are known by.
TEST(Hex, HashesAsItDid) {
  EXPECT_EQ(hash_in_hex(""), "2d06800538d394c2");
  EXPECT_EQ(long_hash_in_hex(""), "99aa06d3014798d86001c324468d497f");
}

TEST(JsonNumber, HasWordsForWhatJsonLacks) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(json_number(0.1), nlohmann::json(0.1));
  EXPECT_EQ(json_number(std::nan("")), "nan");
  EXPECT_EQ(json_number(infinity), "inf");
  EXPECT_EQ(json_number<nlohmann::ordered_json>(-infinity), "-inf");
  for (const double value : {0.1, -0.0, infinity, -infinity, 5e-324})
    EXPECT_EQ(number_in_json(json_number(value)), value);
  EXPECT_TRUE(std::isnan(number_in_json(nlohmann::json("nan")).value()));
  EXPECT_EQ(number_in_json(nlohmann::json("Infinity")), std::nullopt);
  EXPECT_EQ(number_in_json(nlohmann::json(nullptr)), std::nullopt);
  EXPECT_EQ(json_number_and_bits(0.1).dump(), R"({"bits":"3fb999999999999a","value":0.1})");
}

TEST(ShellWord, IsQuotedWhereAShellNeedsIt) {
  EXPECT_EQ(shell_quoted("configs/a_b-1.yaml"), "configs/a_b-1.yaml");
  EXPECT_EQ(shell_quoted("layout=8x3,@%+:"), "layout=8x3,@%+:");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("a;rm"), "'a;rm'");
  EXPECT_EQ(shell_quoted("a'b"), "'a'\\''b'");
  EXPECT_EQ(shell_quoted("é"), "'é'");
  EXPECT_EQ(shell_quoted(std::string_view("a\0b", 3)), std::string("'a\0b'", 5));
}

TEST(ShellWord, IsQuotedWhereThatIsAsked) {
  EXPECT_EQ(shell_quoted("layout==8x3", Quotes::always), "'layout==8x3'");
  EXPECT_EQ(shell_quoted("", Quotes::always), "''");
  EXPECT_EQ(shell_quoted("it's", Quotes::always), "'it'\\''s'");
}

TEST(Median, IsTheMiddleOne) {
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_EQ(median({4}), 4);
  EXPECT_EQ(median({9, 1, 4}), 4);
  EXPECT_EQ(median({9, 1, 4, 5}), 4.5);
  EXPECT_EQ(median_of_sorted(std::vector<double>{1, 2}), 1.5);
}

/// What a shell makes of the word in the place of @: its arguments, one a line.
std::string in_shell(const std::string& text, const std::string& word) {
  ShellText shell;
  const std::size_t at = text.find('@');
  shell.add("printf '%s\\n' ");
  shell.add(text.substr(0, at));
  shell.put(word);
  shell.add(text.substr(at + 1));
  return output_of(shell.text()).first;
}

TEST(ShellText, PutsAWordIntoWhateverQuotesStandAroundIt) {
  const std::string word = "a b'c\"d$(echo ran)`echo ran`\\e;f#*~&";
  for (const char* text : {"@/x", "'@/x'", "\"@/x\"", "\"\"@/x", "''@\"/x\"", "\"$(printf %s @)/x\"", "\"$(printf %s \"@\")\"'/x'", "\"`printf %s @`\"/x",
                           "\"it's\" @/x", "'\"' @/x", "\\\" @/x", "\"\\\"\" @/x", "$(: # it's\n)\"@/x\""}) {
    const std::string said = in_shell(text, word);
    EXPECT_TRUE(said.ends_with(word + "/x\n")) << text << ": " << said;
    EXPECT_LE(std::count(said.begin(), said.end(), '\n'), 2) << text << ": " << said;
  }
  ShellText plain;
  plain.add("cp \"");
  plain.put("/out/runs/a-1");
  plain.add("\"");
  EXPECT_EQ(plain.text(), "cp \"/out/runs/a-1\"");
}

TEST(Turns, LetSoManyComputeAtOnceAndNoMore) {
  Turns turns(2);
  std::atomic<int> computing = 0, most = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Turns::Taken turn(turns);
      for (int round = 0; round < 200; ++round) {
        const int now = ++computing;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::yield();
        --computing;
        const Turns::GivenUp waits;
        std::this_thread::yield();
      }
    });
  }
  threads.clear();
  EXPECT_LE(most, 2);
  EXPECT_GE(most, 1);
}

/// More threads than turns meet again and again: each gives its turn to those that it waits for.
TEST(Turns, AreGivenUpByWhoWaitsForAnother) {
  Turns turns(1);
  constexpr int kThreads = 5, kRounds = 50;
  std::barrier meet(kThreads);
  std::atomic<int> met = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const Turns::Taken turn(turns);
      for (int round = 0; round < kRounds; ++round) {
        const Turns::GivenUp waits;
        meet.arrive_and_wait();
        ++met;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(met, kThreads * kRounds);
}

TEST(Turns, AskNothingOfAThreadWithoutOne) {
  const Turns::GivenUp waits;
  SUCCEED();
}

}  // namespace
}  // namespace lockstep
