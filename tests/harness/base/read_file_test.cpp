#include "harness/base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "harness/base/errors.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// A test that waited for its deadline would be slow: these are short, and one test alone waits for one.
constexpr Patience kShort{0.2, 0.3};

std::string fifo_in(const TempFolder& folder) {
  const std::string path = folder / "fifo";
  EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
  return path;
}

TEST(ReadFile, GivesTheBytesOfARegularFile) {
  const TempFolder folder;
  const std::string bytes("a\0b\r\n", 5);
  write_text(folder / "f", bytes);
  const FileText file = read_file(folder / "f");
  EXPECT_TRUE(file);
  EXPECT_EQ(file.text, bytes);
}

TEST(ReadFile, ReadsAFileOfTheKernelWhoseSizeIsSaidToBeNothing) {
  EXPECT_THAT(read_file("/proc/self/status").text, HasSubstr("Name:"));
}

TEST(ReadFile, SaysWhetherAFileIsMissingOrCannotBeRead) {
  const TempFolder folder;
  const FileText missing = read_file(folder / "none");
  EXPECT_TRUE(missing.missing);
  EXPECT_EQ(missing.problem, "cannot be read: No such file or directory");
  write_text(folder / "f", "x");
  EXPECT_TRUE(read_file(folder / "f/below").missing) << "a file is no folder";
  const FileText there = read_file(folder.path());
  EXPECT_FALSE(there.missing);
  EXPECT_EQ(there.problem, "is a folder, not a file");
}

TEST(ReadFile, RefusesWhatWouldBeWaitedForAndNamesIt) {
  const TempFolder folder;
  EXPECT_EQ(read_file(fifo_in(folder)).problem, "is a FIFO, not a file");
  EXPECT_EQ(read_file("/dev/zero").problem, "is a device, not a file");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (folder / "s").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(read_file(folder / "s").problem, "is a socket, not a file");
  ::close(socket);
}

TEST(ReadFile, RefusesMoreThanItsLimitWithoutReadingIt) {
  const TempFolder folder;
  write_text(folder / "f", "12345");
  EXPECT_EQ(read_file(folder / "f", 4).problem, "has more than 4 bytes");
  EXPECT_TRUE(read_file(folder / "f", 5));
  // A hole of a tebibyte: read, it would take all memory.
  ASSERT_EQ(::truncate((folder / "f").c_str(), off_t{1} << 40), 0);
  EXPECT_EQ(read_file(folder / "f").problem, "has more than 4096 MiB");
}

TEST(ReadFileOrPipe, ReadsAPipeToItsEnd) {
  const TempFolder folder;
  const std::string fifo = fifo_in(folder);
  std::thread writer([&fifo] {
    const int descriptor = ::open(fifo.c_str(), O_WRONLY);
    const std::string text(200000, 'y');
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t wrote = ::write(descriptor, text.data() + done, text.size() - done);
      if (wrote <= 0) break;
      done += static_cast<std::size_t>(wrote);
    }
    ::close(descriptor);
  });
  const FileText file = read_file_or_pipe(fifo, kMostConfigBytes);
  writer.join();
  EXPECT_TRUE(file) << file.problem;
  EXPECT_EQ(file.text, std::string(200000, 'y'));
}

TEST(ReadFileOrPipe, ReadsAPipeWhoseWriterHasGone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "name: x\n", 8), 8);
  ::close(ends[1]);
  EXPECT_EQ(read_file_or_pipe("/proc/self/fd/" + std::to_string(ends[0]), 100).text, "name: x\n");
  ::close(ends[0]);
}

TEST(ReadFileOrPipe, DoesNotWaitForEverForAWriter) {
  const TempFolder folder;
  const FileText file = read_file_or_pipe(fifo_in(folder), 100, kShort);
  EXPECT_EQ(file.problem, "gave no byte within 0.2 s: does anything write to it?");
}

TEST(ReadFileOrPipe, EndsAtItsLimitWhateverComes) {
  EXPECT_EQ(read_file_or_pipe("/dev/zero", kMostConfigBytes).problem, "has more than 1 MiB");
}

TEST(ReadConfigText, NamesThePathOfWhatIsTooLarge) {
  const TempFolder folder;
  write_text(folder / "m.yaml", std::string(kMostConfigBytes + 1, '#'));
  try {
    read_config_text(folder / "m.yaml");
    FAIL() << "a config of more than a MiB was read";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), folder / "m.yaml: has more than 1 MiB: too large for a config");
  }
}

}  // namespace
}  // namespace lockstep
