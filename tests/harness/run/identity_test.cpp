#include "harness/run/libraries.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

TEST(Identity, ChangesWithTheRankProgram) {
  const TempFolder folder;
  write_text(folder / "rank", std::string(1000000, 'a'));
  const BuildIdentity one = current_identity(folder / "rank", "d");
  EXPECT_EQ(one.build.size(), 16U);
  EXPECT_EQ(one.build, current_identity(folder / "rank", "e").build);
  write_text(folder / "rank", std::string(999999, 'a') + 'b');
  EXPECT_NE(one.build, current_identity(folder / "rank", "d").build);
  EXPECT_EQ(one.data, "d");
}

TEST(Identity, ReadsTheVersionBesideTheRankProgram) {
  const TempFolder folder;
  EXPECT_EQ(libtorch_version(folder / "rank"), "");
  write_text(folder / "rank.version", "2.13.0\n");
  EXPECT_EQ(libtorch_version(folder / "rank"), "2.13.0");
  EXPECT_EQ(commit_of_rank_program(folder / "rank"), "unknown commit");
  write_text(folder / "rank.version", "2.13.0\ncommit 0123456789ab+changes\n");
  EXPECT_EQ(libtorch_version(folder / "rank"), "2.13.0");
  EXPECT_EQ(commit_of_rank_program(folder / "rank"), "commit 0123456789ab+changes");
}

TEST(Identity, ReadsTheVersionOfAnInstalledRankProgramInItsPrefix) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "share/lockstep");
  write_text(folder / "share/lockstep/rank.version", "2.13.0\ncommit 0123456789ab\n");
  EXPECT_EQ(libtorch_version(folder / "bin/rank"), "2.13.0");
  EXPECT_EQ(commit_of_rank_program(folder / "bin/rank"), "commit 0123456789ab");
}

TEST(Identity, WorksWithoutARankProgram) {
  const BuildIdentity identity = current_identity("/nowhere/lockstep-rank", "d");
  EXPECT_FALSE(identity.build.empty());
  EXPECT_EQ(identity.libtorch, "");
  EXPECT_FALSE(identity.isa.empty());
}

TEST(Identity, KnowsTheVariablesThatChooseInstructions) {
  const std::string plain = instruction_sets();
  ASSERT_EQ(::setenv("ATEN_CPU_CAPABILITY", "default", 1), 0);
  EXPECT_EQ(instruction_sets(), plain + " ATEN_CPU_CAPABILITY=default");
  ::unsetenv("ATEN_CPU_CAPABILITY");
}

TEST(RankProgramPath, IsBesideThisProgramUnlessNamed) {
  ::unsetenv("LOCKSTEP_RANK");
  EXPECT_EQ(rank_program_path(), std::string(LOCKSTEP_BINARY_DIR) + "/bin/lockstep-rank");
  ASSERT_EQ(::setenv("LOCKSTEP_RANK", "/elsewhere/rank", 1), 0);
  EXPECT_EQ(rank_program_path(), "/elsewhere/rank");
  ::unsetenv("LOCKSTEP_RANK");
}

}  // namespace
}  // namespace lockstep
