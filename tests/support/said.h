#pragma once
// What a test finds said of its cases, as lines of a data file instead of expectations.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "harness/base/text.h"
#include "tests/support/temp_folder.h"

namespace lockstep::support {

/// Lines "what => said" of the running test, held at its end to those under "== Suite.Test" in tests/said.txt. Further lines are
/// indented, and the folder `hidden` is written as DIR. LOCKSTEP_UPDATE_GOLDEN=1 rewrites the lines, whose difference must be read.
class Said {
 public:
  explicit Said(std::string hidden = "") : hidden_(std::move(hidden)) {}
  Said(const Said&) = delete;
  Said& operator=(const Said&) = delete;
  ~Said() {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    const std::string head = std::string("== ") + test.test_suite_name() + "." + test.name() + "\n";
    std::string all = read_text(path_);
    const std::size_t at = all.find(head), begin = at == std::string::npos ? all.size() : at + head.size();
    const std::size_t end = std::min(all.find("\n== ", begin - 1), all.size() - 1) + 1;
    const std::string expected = begin < all.size() ? all.substr(begin, end - begin) : "";
    if (std::getenv("LOCKSTEP_UPDATE_GOLDEN") != nullptr) {
      if (at == std::string::npos) all += head + now_;
      else all.replace(begin, end - begin, now_);
      write_text(path_, all);
    } else {
      EXPECT_EQ(now_, expected) << path_ << ", " << head << "LOCKSTEP_UPDATE_GOLDEN=1 rewrites it";
    }
  }
  void operator()(const std::string& what, const std::string& said) {
    std::string shown = hidden_.empty() ? said : replaced(said, hidden_, "DIR");
    while (shown.ends_with('\n')) shown.pop_back();
    now_ += replaced(what + " => " + shown, "\n", "\n    ") + "\n";
  }

 private:
  const std::string path_ = LOCKSTEP_SOURCE_DIR "/tests/said.txt", hidden_;
  std::string now_;
};

/// What `call` throws, or that it throws nothing.
template <typename Call>
std::string thrown_by(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing is thrown";
}

}  // namespace lockstep::support
