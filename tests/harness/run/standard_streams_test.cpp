#include "harness/run/launchers/local/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace lockstep {
namespace {

bool is_null(int descriptor) {
  struct stat null {
  }, open{};
  return ::stat("/dev/null", &null) == 0 && ::fstat(descriptor, &open) == 0 && open.st_rdev == null.st_rdev &&
         S_ISCHR(open.st_mode);
}

/// What a child of ours sees that closes the descriptors of `mask` first: 0 if those are /dev/null and the
/// next file gets a number above them.
int end_of_child(unsigned mask) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int fd = 0; fd < 3; ++fd) {
      if ((mask >> fd & 1) != 0) ::close(fd);
    }
    open_standard_streams();
    for (int fd = 0; fd < 3; ++fd) {
      if ((mask >> fd & 1) != 0 && !is_null(fd)) ::_exit(10 + fd);
    }
    rlimit none{};
    ::setrlimit(RLIMIT_FSIZE, &none);
    if (::ftruncate(::memfd_create("a", 0), 1) == 0 || errno != EFBIG) ::_exit(40);
    if (::write(STDERR_FILENO, "", 0) != 0 || ::write(STDOUT_FILENO, "", 0) != 0) ::_exit(20);
    ::_exit(::open("/dev/zero", O_RDONLY) > 2 ? 0 : 30);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StandardStreams, AreOpenWhicheverWereClosed) {
  for (unsigned mask = 0; mask < 8; ++mask) EXPECT_EQ(end_of_child(mask), 0) << mask;
}

TEST(StandardStreams, StayAsTheyAreIfTheyAreOpen) {
  struct stat before {
  }, after{};
  ASSERT_EQ(::fstat(STDERR_FILENO, &before), 0);
  open_standard_streams();
  ASSERT_EQ(::fstat(STDERR_FILENO, &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(before.st_dev, after.st_dev);
}

}  // namespace
}  // namespace lockstep
