#include "reports/text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

TEST(CleanText, KeepsWhatIsText) { EXPECT_EQ(clean_text("a é 名 👍\n\tb"), "a é 名 👍\n\tb"); }

TEST(CleanText, ReplacesBytesThatAreNoUtf8) {
  EXPECT_EQ(clean_text("a\xff"
                       "b"),
            "a\uFFFDb");
  EXPECT_EQ(clean_text("\xc0\xaf"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(clean_text("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(clean_text("\xe5\x90"), "\uFFFD\uFFFD");                      // cut
  EXPECT_EQ(clean_text("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
}

TEST(CleanText, ShowsControlCharactersAsPictures) {
  EXPECT_EQ(clean_text(std::string_view("a\0b\x07\x7f", 5)), "a␀b␇␡");
  EXPECT_EQ(clean_text("\xc2\x85"), "\uFFFD");
  EXPECT_EQ(clean_text("\xef\xbf\xbf"), "\uFFFD");
}

TEST(CleanText, DropsTerminalSequencesAndCarriageReturnsBeforeLineFeeds) {
  EXPECT_EQ(clean_text("\x1b[1;31mred\x1b[0m\x1b]0;title\x07!\r\n"), "red!\n");
  EXPECT_EQ(clean_text("\x1b"), "␛");
  EXPECT_EQ(clean_text("\x1b[31"), "␛[31");
  EXPECT_EQ(clean_text("a\rb"), "a␍b");
}

TEST(CleanText, NamesTheFirstCharacterThatItWouldReplace) {
  EXPECT_EQ(unclean_character("plain ± 中 \n\t"), "");
  EXPECT_EQ(unclean_character("a\x1b[0m"), "the control character U+001B");
  EXPECT_EQ(unclean_character("a\xc2\x85"), "the control character U+0085");
  EXPECT_EQ(unclean_character("a\u202Eb"), "the direction mark U+202E");
  EXPECT_EQ(unclean_character("a\u2028b"), "the character U+2028");
  EXPECT_EQ(unclean_character("a\xff"), "a byte that is not UTF-8");
}

TEST(CleanJson, ReadsBackTheSameAndHoldsNothingForATerminal) {
  const std::string text = "\x7f \u009b \u202E \u2028 \U0001FFFE é 中 \n";
  const std::string json = nlohmann::json(text).dump(), clean = clean_json(json);
  EXPECT_EQ(clean_text(clean), clean);
  EXPECT_EQ(nlohmann::json::parse(clean), text);
  EXPECT_NE(clean.find("é 中"), std::string::npos) << "what can be read stays";
}

TEST(CleanText, TakesAwayMarksThatReorder) { EXPECT_EQ(clean_text("a\u202Eb\u2066c"), "a\uFFFDb\uFFFDc"); }

TEST(EscapeMarkup, LeavesNothingThatCouldBeMarkup) {
  EXPECT_EQ(escape_markup("<a href=\"x\" o='y'>&amp;"),
            "&lt;a href=&quot;x&quot; o=&#39;y&#39;&gt;&amp;amp;");
}

TEST(EscapeMarkdown, LeavesNothingThatCouldBeMarkdown) {
  EXPECT_EQ(escape_markdown("a|b *c* _d_ `e` [f] <g> #h\n@i"),
            "a\\|b \\*c\\* \\_d\\_ \\`e\\` \\[f\\] &lt;g&gt; \\#h &#64;i");
}

TEST(DisplayWidth, CountsWideAndCombiningCharacters) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("± ≠ é"), 5);
  EXPECT_EQ(display_width("e\xcc\x81"), 1);
  EXPECT_EQ(display_width("名前"), 4);
  EXPECT_EQ(display_width("👍"), 2);
}

TEST(Shorten, CutsAtColumnsAndNeverInsideACharacter) {
  EXPECT_EQ(shorten("abcdef", 6), "abcdef");
  EXPECT_EQ(shorten("abcdefg", 6), "abcde…");
  EXPECT_EQ(shorten("名前名前", 6), "名前…");
  EXPECT_EQ(shorten("ab cdef", 4), "ab…");
  EXPECT_EQ(shorten("abc", 0), "");
}

TEST(Slug, IsStableAndNeverEmpty) {
  EXPECT_EQ(slug("8x3 global lr_scale=0.125"), "8x3-global-lr_scale-0.125");
  EXPECT_EQ(slug("<script>"), "script");
  EXPECT_EQ(slug("名前"), "cell");
  EXPECT_LE(slug(std::string(1000, 'a')).size(), 60u);
}

}  // namespace
}  // namespace lockstep
