// The main function of the test programs. Says nothing itself before the tests: what a forked process writes holds no line of
// this one. Skipped tests are told with their reasons; where all were skipped, it ends with 77, which ctest takes as skipped.

#include <gtest/gtest.h>

#include <cstdio>

namespace {

constexpr int kAllSkipped = 77;

void tell_skipped(const testing::TestInfo& test) {
  for (int i = 0; i < test.result()->total_part_count(); ++i) {
    const testing::TestPartResult& part = test.result()->GetTestPartResult(i);
    if (part.skipped()) std::printf("skipped: %s.%s: %s\n", test.test_suite_name(), test.name(), part.message());
  }
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) tell_skipped(*suite.GetTestInfo(t));
  }
  const bool all_skipped = all.skipped_test_count() > 0 && all.successful_test_count() == 0;
  return status == 0 && all_skipped ? kAllSkipped : status;
}
