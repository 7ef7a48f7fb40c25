#include "harness/run/libraries.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "harness/base/errors.h"
#include "harness/run/launchers/local/launcher.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr const char* kWhole = LOCKSTEP_BINARY_DIR "/bin/fake_rank";
/// Its libtorch_planted.so lies where the loader does not look by itself.
constexpr const char* kLacking = LOCKSTEP_BINARY_DIR "/bin/lacking_library";

class Libraries : public testing::Test {
 protected:
  void name_libtorch(const std::string& folder) { ::setenv("LOCKSTEP_LIBTORCH", folder.c_str(), 1); }
  Libraries() { ::unsetenv("LOCKSTEP_LIBTORCH"); }
  ~Libraries() override { ::unsetenv("LOCKSTEP_LIBTORCH"); }
};

TEST_F(Libraries, OfAProgramThatStartsAreAllThere) {
  EXPECT_THAT(missing_libraries(kWhole), IsEmpty());
  EXPECT_EQ(library_problem(kWhole), "");
  EXPECT_THAT(missing_libraries("/nowhere/lockstep-rank"), IsEmpty()) << "that is another check's matter";
}

TEST_F(Libraries, ThatTheLoaderDoesNotFindAreNamedWithWhatToDo) {
  EXPECT_THAT(missing_libraries(kLacking), ElementsAre("libtorch_planted.so"));
  EXPECT_THAT(library_problem(kLacking),
              AllOf(StartsWith(std::string(kLacking) + ": LibTorch 2.13 not found (libtorch_planted.so)"),
                    HasSubstr("pip install torch==2.13.0"), HasSubstr("set LOCKSTEP_LIBTORCH to the folder"),
                    HasSubstr("ln -s FOLDER " LOCKSTEP_BINARY_DIR "/lib/lockstep/libtorch")));
  try {
    const LocalLauncher parent(kLacking);
    FAIL() << "started";
  } catch (const MachineError& error) {
    EXPECT_EQ(error.what(), library_problem(kLacking));
  }
}

TEST_F(Libraries, AreFoundInTheNamedFolder) {
  name_libtorch(LOCKSTEP_BINARY_DIR "/planted");
  EXPECT_EQ(library_problem(kLacking), "");
  name_libtorch("/nowhere");
  EXPECT_THAT(library_problem(kLacking), HasSubstr("LOCKSTEP_LIBTORCH=/nowhere does not hold it"));
}

TEST_F(Libraries, OfTheNamedFolderComeBeforeOthers) {
  name_libtorch("/torch/lib");
  ASSERT_EQ(::setenv("LD_LIBRARY_PATH", "/others", 1), 0);
  EXPECT_THAT(rank_environment(), Contains("LD_LIBRARY_PATH=/torch/lib:/others"));
  EXPECT_THAT(rank_environment(), testing::Not(Contains("LD_LIBRARY_PATH=/others")));
  ::unsetenv("LD_LIBRARY_PATH");
  EXPECT_THAT(rank_environment(), Contains("LD_LIBRARY_PATH=/torch/lib"));
}

TEST_F(Libraries, OfLibTorchAreKnownByTheirFolder) {
  EXPECT_EQ(libtorch_folder(kWhole), "") << "it needs none";
  EXPECT_EQ(libtorch_folder(kLacking), "");
  name_libtorch(LOCKSTEP_BINARY_DIR "/planted");
  EXPECT_EQ(libtorch_folder(kLacking), LOCKSTEP_BINARY_DIR "/planted");
}

TEST(LibtorchFlavour, IsThatOfTheBuild) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "lib");
  EXPECT_EQ(libtorch_flavour(folder / "lib"), "CPU build");
  write_text(folder / "version.py", "from typing import Optional\n__all__ = ['__version__']\n__version__ = '2.13.0+cpu'\ndebug = False\n");
  EXPECT_EQ(libtorch_flavour(folder / "lib"), "CPU build 2.13.0+cpu");
  write_text(folder / "build-version", "2.13.0+cu130\n");
  write_text(folder / "lib/libtorch_cuda.so", "");
  EXPECT_EQ(libtorch_flavour(folder / "lib"), "CUDA build 2.13.0+cu130");
}

}  // namespace
}  // namespace lockstep
