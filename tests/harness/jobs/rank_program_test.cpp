// Runs are trained anew when the rank program changes: it must not change with what is said of them.

#include <gtest/gtest.h>

#include "harness/judge/causes/rules.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

TEST(RankProgram, HoldsNoSentenceOfACause) {
  const std::string ranks = read_text(LOCKSTEP_BINARY_DIR "/bin/lockstep-rank");
  const std::string judges = read_text(LOCKSTEP_BINARY_DIR "/bin/lockstep");
  ASSERT_FALSE(ranks.empty());
  for (const CausePage& page : cause_pages()) {
    EXPECT_NE(judges.find(page.what), std::string::npos) << page.code;
    EXPECT_EQ(ranks.find(page.what), std::string::npos) << page.code;
  }
}

}  // namespace
}  // namespace lockstep
