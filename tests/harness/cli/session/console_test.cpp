#include "harness/cli/session/progress.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ColourWanted, OnTerminalsAlone) {
  EXPECT_TRUE(colour_wanted(true, nullptr, nullptr, "xterm"));
  EXPECT_TRUE(colour_wanted(true, nullptr, nullptr, nullptr));
  EXPECT_FALSE(colour_wanted(false, nullptr, nullptr, "xterm"));
  EXPECT_FALSE(colour_wanted(true, nullptr, nullptr, "dumb"));
}

TEST(ColourWanted, HonoursTheUsersWish) {
  EXPECT_FALSE(colour_wanted(true, "1", nullptr, "xterm"));
  EXPECT_FALSE(colour_wanted(true, "1", "1", "xterm")) << "no means no";
  EXPECT_TRUE(colour_wanted(true, "", nullptr, "xterm")) << "an empty NO_COLOR is none";
  EXPECT_TRUE(colour_wanted(false, nullptr, "1", "dumb"));
  EXPECT_FALSE(colour_wanted(false, nullptr, "0", "xterm"));
}

}  // namespace
}  // namespace lockstep
