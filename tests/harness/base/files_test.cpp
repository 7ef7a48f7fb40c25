#include "harness/base/files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {


std::error_code write_as(OpenFor purpose, const std::string& path, const std::string& content) {
  int file = -1;
  if (const auto error = real_files().open(path, purpose, file)) return error;
  std::error_code error = real_files().write(file, content);
  if (!error) error = real_files().sync(file);
  const std::error_code unclosed = real_files().close(file);
  return error ? error : unclosed;
}

TEST(RealFiles, OpenForWhatTheyAreAsked) {
  TempFolder folder;
  EXPECT_FALSE(write_as(OpenFor::creating, folder / "f", "one"));
  EXPECT_EQ(write_as(OpenFor::creating, folder / "f", "two"), std::errc::file_exists);
  EXPECT_EQ(read_text(folder / "f"), "one");
  EXPECT_FALSE(write_as(OpenFor::appending, folder / "f", ", two"));
  EXPECT_EQ(read_text(folder / "f"), "one, two");
  EXPECT_FALSE(write_as(OpenFor::replacing, folder / "f", "3"));
  EXPECT_EQ(read_text(folder / "f"), "3");
  EXPECT_EQ(write_as(OpenFor::syncing, folder / "f", ""), std::errc::not_a_directory);
}

TEST(RealFiles, SayWhatTheSystemSays) {
  TempFolder folder;
  EXPECT_EQ(real_files().remove(folder / "none"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(real_files().rename(folder / "none", folder / "f"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(real_files().close(-1), std::errc::bad_file_descriptor);
  EXPECT_EQ(real_files().sync(-1), std::errc::bad_file_descriptor);
  EXPECT_EQ(real_files().write(-1, "x"), std::errc::bad_file_descriptor);
  write_text(folder / "f", "");
  EXPECT_EQ(real_files().make_folders(folder / "f/g"), std::errc::not_a_directory);
}

TEST(RealFiles, MakeAndRemoveWholeFolders) {
  TempFolder folder;
  EXPECT_FALSE(real_files().make_folders(folder / "a/b"));
  EXPECT_FALSE(real_files().make_folders(folder / "a/b"));
  write_text(folder / "a/b/f", "");
  EXPECT_FALSE(real_files().remove_all(folder / "a"));
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  EXPECT_FALSE(real_files().remove_all(folder / "a"));
}

}  // namespace
}  // namespace lockstep
