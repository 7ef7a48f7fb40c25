// The small helpers of base that make texts of values.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/hashing.h"
#include "harness/base/json.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"

namespace lockstep {
namespace {

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
  std::FILE* const pipe = ::popen(shell.text().c_str(), "r");
  std::string said;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) said += static_cast<char>(c);
  ::pclose(pipe);
  return said;
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

}  // namespace
}  // namespace lockstep
