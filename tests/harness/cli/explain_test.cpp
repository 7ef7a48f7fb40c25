#include "harness/cli/explain.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <span>
#include <sstream>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/cli/commands.h"
#include "harness/cli/outcomes.h"
#include "harness/lib/flight/dump.h"
#include "harness/lib/flight/ring.h"
#include "harness/lib/rewards/failure.h"
#include "harness/run/process_state.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Said {
  int status;
  std::string text;
};

Said explained(const std::string& word) {
  std::ostringstream out, err;
  const int status = explain_command({word}, {out, err});
  return {status, out.str()};
}

/// Two ranks, the second of which has not entered what the first waits in.
void leave_records(const std::string& run, bool part) {
  for (int rank = 0; rank < 2; ++rank) {
    flight::Ring ring(flight::ring_path(run, rank), rank, 2);
    flight::Entry entry;
    entry.group = "data";
    entry.op = "all_reduce";
    entry.sequence = 1;
    if (rank == 1 && part) continue;
    const uint64_t number = ring.enter(entry);
    if (!part) ring.leave(number);
  }
  flight::write_records(run, 2);
}

/// Every outcome that stands as a text in the code of a suite.
std::set<std::string> outcomes_in_the_code() {
  const std::regex literals[] = {
      std::regex(R"re(\b(?:good|fault|undecided|CaseResult)\s*[({]\s*"([^"]+)")re"),
      std::regex(R"re(\{\s*"([^"]+)",\s*(?:CaseVerdict|true|false)\b)re"),
      std::regex(R"re(\?\s*"([^"]+)"\s*:\s*"([^"]+)",\s*(?:CaseVerdict|true|false)\b)re"),
  };
  std::set<std::string> outcomes;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LOCKSTEP_SOURCE_DIR "/harness/suites")) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string text = read_file(entry.path().string()).text;
    for (const std::regex& literal : literals) {
      for (std::sregex_iterator at(text.begin(), text.end(), literal), end; at != end; ++at) {
        for (std::size_t group = 1; group < at->size(); ++group) outcomes.insert((*at)[group].str());
      }
    }
  }
  return outcomes;
}

TEST(Explain, HasAPageForEveryOutcomeOfASuite) {
  const std::set<std::string> outcomes = outcomes_in_the_code();
  EXPECT_GT(outcomes.size(), 40U);
  for (const std::string& outcome : outcomes) EXPECT_NE(find_outcome_page(outcome), nullptr) << outcome;
  EXPECT_EQ(find_outcome_page("no such outcome"), nullptr);
}

TEST(Explain, HasAPageForEveryVerdict) {
  using enum VerdictKind;
  for (const VerdictKind kind : {identical, within_envelope, equivalent, divergent, inconclusive, failed}) {
    const Said said = explained(std::string(name_of(kind)));
    EXPECT_EQ(said.status, 0);
    EXPECT_THAT(said.text, HasSubstr("(verdict of a cell)")) << name_of(kind);
  }
}

TEST(Explain, SaysWhatAnOutcomeMeansAndWhatToDo) {
  EXPECT_THAT(explained("lost work").text, AllOf(HasSubstr("(outcome; suites: program"), HasSubstr("what to do"), HasSubstr("OUT/replay")));
  EXPECT_THAT(explained("whole, new").text, Not(HasSubstr("what to do")));
  EXPECT_THAT(explained("").text, HasSubstr("torn"));
}

TEST(Explain, ACodeThatTracesAndRewardsShareHasBothPages) {
  int shared = 0;
  for (const rewards::Cause& cause : rewards::causes()) {
    const Said said = explained(std::string(cause.code));
    EXPECT_EQ(said.status, 0);
    EXPECT_THAT(said.text, HasSubstr("(rewards and advantages)")) << cause.code;
    const CausePage* page = find_cause_page(cause.code);
    if (page == nullptr) continue;
    ++shared;
    EXPECT_TRUE(said.text.starts_with(explain_text(*page))) << cause.code;
  }
  EXPECT_GE(shared, 6);
  EXPECT_THAT(explained("sampler-seed-differs").text, Not(HasSubstr("(rewards and advantages)")));
}

TEST(ExplainFolder, SaysWhereARankThatHungWas) {
  const TempFolder run;
  leave_records(run.path(), true);
  write_stacks(run.path(), 1, {"TID 7:\n#0 0x1 pause\n#1 0x2 read_rows\n", {"pause", "read_rows"}});
  for (const std::string& folder : {run.path(), run.path() + "/", run / "flight"}) {
    const Said said = explained(folder);
    EXPECT_EQ(said.status, 1);
    EXPECT_THAT(said.text, AllOf(HasSubstr("all_reduce"), HasSubstr("rank 1: its first thread is in pause < read_rows (all of it: " + (run / "stacks-1.txt") + ")"))) << folder;
  }
}

TEST(ExplainFolder, SaysWhyThereIsNoStack) {
  const TempFolder run;
  write_stacks(run.path(), 2, {"no stack: none of eu-stack, gdb and py-spy is installed\n", {}});
  EXPECT_THAT(explained(run.path()).text, AllOf(HasSubstr("rank 2: no stack: none of eu-stack"), Not(HasSubstr("collectives on record"))));
}

TEST(ExplainFolder, FindsNothingInARunThatWent) {
  const TempFolder run;
  leave_records(run.path(), false);
  const Said said = explained(run.path());
  EXPECT_EQ(said.status, 0);
  EXPECT_THAT(said.text, AllOf(HasSubstr("All 1 collectives on record agree"), Not(HasSubstr("first thread"))));
}

TEST(ExplainFolder, JudgesTheRestAndNamesTheRecordThatItCannotRead) {
  const TempFolder run;
  leave_records(run.path(), false);
  std::ofstream(run / "flight/rank_2") << "\x80\x02}(";
  const Said said = explained(run.path());
  EXPECT_EQ(said.status, kExitUndecided);
  EXPECT_THAT(said.text, AllOf(HasSubstr("All 1 collectives on record agree, and the 2 ranks whose records were read have left them."),
                               HasSubstr(run / "flight/rank_2" + ": the pickle is cut short (at byte 4); nothing is said of rank 2\n")));
  for (int rank = 0; rank < 2; ++rank) std::filesystem::remove(run / ("flight/rank_" + std::to_string(rank)));
  EXPECT_THROW(explained(run.path()), ConfigError);
}

TEST(ExplainFolder, IsUndecidedWithoutARanksRecord) {
  const TempFolder run;
  leave_records(run.path(), false);
  std::filesystem::remove(run / "flight/rank_0");
  const Said said = explained(run.path());
  EXPECT_EQ(said.status, kExitUndecided);
  EXPECT_THAT(said.text, AllOf(HasSubstr("rank 0 left no record"), Not(HasSubstr("every rank"))));
}

TEST(Explain, RefusesAWordThatCanBeNoFolder) { EXPECT_THROW(explained(std::string(5000, 'x')), ConfigError); }

TEST(ExplainFolder, RefusesOneThatHoldsNeither) {
  const TempFolder folder;
  EXPECT_THROW(explained(folder.path()), ConfigError);
}

}  // namespace
}  // namespace lockstep
