// The same operations in the same order as strace sees.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "tests/harness/suites/foreign_saver/support.h"

namespace lockstep::program {
namespace {

const char* const kCalls =
    "open,openat,creat,write,pwrite64,writev,pwritev,ftruncate,truncate,fsync,fdatasync,rename,renameat,renameat2,link,"
    "symlink,unlink,unlinkat,mkdir,rmdir,msync";

/// "write state" of each line of strace's that changes something below `out`.
std::vector<std::string> by_strace(const std::string& command, const SavingFolder& folder) {
  const std::string log = folder.root() + "/strace.log";
  const std::string line = "strace -f -y -s 0 -o " + log + " -e trace=" + kCalls + " " + command;
  EXPECT_EQ(std::system(line.c_str()), 0) << line;
  std::ifstream stream(log);
  std::vector<std::string> calls;
  const std::regex shape(R"(^\d+ +(\w+)\((.*))");
  for (std::string text; std::getline(stream, text);) {
    std::smatch parts;
    if (!std::regex_search(text, parts, shape)) continue;
    const std::string call = parts[1], rest = parts[2];
    const bool opens = call == "openat" || call == "open";
    if (opens && rest.find("O_WRONLY") == std::string::npos && rest.find("O_RDWR") == std::string::npos &&
        rest.find("O_CREAT") == std::string::npos)
      continue;
    const std::size_t at = rest.find(folder.out() + "/");
    if (at == std::string::npos) continue;
    const std::size_t begin = at + folder.out().size() + 1;
    calls.push_back(call + " " + rest.substr(begin, rest.find_first_of("\">", begin) - begin));
  }
  return calls;
}

std::vector<std::string> by_tracer(const std::string& command, const SavingFolder& folder) {
  std::vector<std::string> calls;
  for (const Operation& operation : folder.run(command).operations) {
    // strace shows no file behind an address, and closes of files that were only read too.
    if (operation.call == "close" || operation.call == "mmap" || operation.call == "msync") continue;
    calls.push_back(operation.call + " " + (operation.path.empty() ? operation.to : operation.path));
  }
  return calls;
}

class Strace : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("strace -V > /dev/null 2>&1") != 0) GTEST_SKIP() << "strace is not installed";
    if (std::system("strace -o /dev/null true > /dev/null 2>&1") != 0) GTEST_SKIP() << "strace may not trace here";
  }
  static void expect_same(const std::string& command) {
    const SavingFolder a, b;
    const auto filled = [&](const SavingFolder& folder) {
      return std::regex_replace(command, std::regex("OUT"), folder.out());
    };
    const std::vector<std::string> ours = by_tracer(filled(a), a), theirs = by_strace(filled(b), b);
    EXPECT_EQ(ours, theirs);
    EXPECT_GE(ours.size(), 3U);
  }
};

TEST_F(Strace, AgreesOnAProgramThatWritesInEveryWay) { expect_same(kSaver + " every_way save OUT 2"); }

TEST_F(Strace, AgreesOnAStaticProgram) { expect_same(kStaticSaver + " every_way save OUT 2"); }

TEST_F(Strace, AgreesOnPythonsFiles) {
  if (std::system("python3 -c pass > /dev/null 2>&1") != 0) GTEST_SKIP() << "python3 is not installed";
  expect_same(
      "python3 -B -c 'import os; f=open(\"OUT/a\",\"wb\"); f.write(b\"x\"*100000); f.flush(); os.fsync(f.fileno()); f.close(); "
      "os.replace(\"OUT/a\",\"OUT/b\"); open(\"OUT/c\",\"w\").write(\"c\"); os.remove(\"OUT/c\")'");
}

}  // namespace
}  // namespace lockstep::program
