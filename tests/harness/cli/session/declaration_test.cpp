// What is declared of a judgement is remembered with the runs: when each was first planned, and not later.

#include "harness/cli/session/prepare.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <filesystem>

#include "harness/base/errors.h"
#include "harness/cli/session/judged.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/plan/read_matrix.h"
#include "tests/support/fake_files.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kMatrix =
    "name: x\nsteps: 20\nquestion: outcome\nseeds: 0..4\ncertify_steps: 0\nforced_steps: []\n"
    "primary: {metric: accuracy_24, margin: 0.03, alpha: 0.05}\n"
    "reference: {layout: 1x24}\naxes: {layout: [8x3], lr_scale: [1, 0.125]}\npower_controls: [{lr_scale: 0.125}]\n";

class Declared : public testing::Test {
 protected:
  Plan plan(const std::vector<std::string>& set = {}, const std::string& seeds = "") {
    return make_plan(parse_matrix(kMatrix, "x.yaml", {set, "", seeds, ""}), folder_.path(), {"b", "l", "i", "d"});
  }
  /// As `lockstep run` does: notes, then runs.
  void run(const std::vector<std::string>& set = {}, const std::string& seeds = "") {
    const Plan planned = plan(set, seeds);
    note_declared(planned, folder_.path());
    finish(planned);
  }
  void finish(const Plan& planned) {
    for (const PlannedRun& run : planned.runs)
      std::filesystem::create_directories(run_folder(folder_.path(), run.id));
  }
  Declaration found(const std::vector<std::string>& set = {}, const std::string& seeds = "") {
    return declaration_of(plan(set, seeds), folder_.path());
  }
  std::string path() const { return folder_ / "declared.json"; }
  const TempFolder folder_;
};

TEST_F(Declared, BeforeTheRunsIsKnownFromTheRecord) {
  run();
  run();  // and stays so however often the runs are used again
  const Declaration d = found();
  EXPECT_EQ(d.runs, 15);
  EXPECT_EQ(d.before, 15);
  EXPECT_EQ(d.changed, 0);
  EXPECT_THAT(d.changes, IsEmpty());
}

// All runs are used again, and the verdict may turn: the sentence must not stand under both.
TEST_F(Declared, AMarginThatIsChangedAfterTheRunsIsNoticed) {
  run();
  run({"primary.margin=0.3"});
  const Declaration d = found({"primary.margin=0.3"});
  EXPECT_EQ(d.before, 0);
  EXPECT_EQ(d.changed, 15);
  ASSERT_EQ(d.changes.size(), 1U);
  EXPECT_EQ(d.changes[0].what, "margin");
  EXPECT_EQ(d.changes[0].was, "0.03");
  EXPECT_EQ(d.changes[0].is, "0.3");
  EXPECT_EQ(d.changes[0].runs, 15);
  EXPECT_EQ(found().before, 15) << "what was declared first";
}

TEST_F(Declared, EachThingThatDefinesTheJudgementCounts) {
  run();
  const auto what = [this](const std::vector<std::string>& set) {
    std::vector<std::string> names;
    for (const DeclaredChange& change : found(set).changes) names.push_back(change.what);
    return names;
  };
  EXPECT_THAT(what({"primary.metric=accuracy_256"}), ElementsAre("metric"));
  EXPECT_THAT(what({"primary.alpha=0.1"}), ElementsAre("alpha"));
  EXPECT_THAT(what({"primary.target=0.4"}), ElementsAre("target"));
  EXPECT_THAT(what({"seeds=auto"}), ElementsAre("test"));
  EXPECT_THAT(what({"primary.test=sign"}), ElementsAre("test"));
  EXPECT_THAT(what({"primary.margin=0.02", "primary.alpha=0.1"}), ElementsAre("margin", "alpha"));
  Plan asked = plan();
  asked.matrix.question = "mechanism";
  ASSERT_EQ(declaration_of(asked, folder_.path()).changes.size(), 1U);
  EXPECT_EQ(declaration_of(asked, folder_.path()).changes[0].what, "question");
}

TEST_F(Declared, RunsThatAreAddedLaterCountByThemselves) {
  run({}, "0..2");
  run({"primary.margin=0.02"}, "0..4");
  const Declaration d = found({"primary.margin=0.02"}, "0..4");
  EXPECT_EQ(d.runs, 15);
  EXPECT_EQ(d.changed, 9);
  EXPECT_EQ(d.before, 6);
}

TEST_F(Declared, OfRunsOfAnEarlierVersionIsNotKnown) {
  finish(plan());
  run();
  run();
  const Declaration d = found();
  EXPECT_EQ(d.runs, 15);
  EXPECT_EQ(d.before + d.changed, 0);
}

// Runs are done anew to the same bits: whoever saw them has seen them.
TEST_F(Declared, IsRememberedWhereTheRunsAreRemovedAndDoneAnew) {
  run();
  note_undeclared(plan(), folder_.path());
  std::filesystem::remove_all(folder_ / "runs");
  run({"primary.margin=0.3"});
  EXPECT_EQ(found({"primary.margin=0.3"}).changed, 15);
  // Of an earlier version too, which left runs and no record.
  std::filesystem::remove(path());
  note_undeclared(plan(), folder_.path());
  std::filesystem::remove_all(folder_ / "runs");
  run();
  EXPECT_EQ(found().before + found().changed, 0);
}

TEST_F(Declared, OfADamagedRecordIsNotKnownAndSaid) {
  run();
  std::string text = read_text(path());
  text[text.find("0.03")] = '9';
  for (const std::string& content : {text, std::string("{"), std::string("[]")}) {
    write_text(path(), content);
    EXPECT_EQ(found().before + found().changed, 0);
  }
  std::vector<std::string> said;
  note_declared(plan(), folder_.path(), [&said](const std::string& line) { said.push_back(line); });
  EXPECT_THAT(said, ElementsAre(AllOf(HasSubstr("declared.json: "), HasSubstr("for the runs here it is unknown when"))));
  EXPECT_EQ(found().before + found().changed, 0) << "the runs lie there, and nobody knows since when";
}

TEST_F(Declared, IsWrittenOnceAndWhole) {
  support::FakeFiles files;
  note_declared(plan(), folder_.path(), nullptr, files);
  EXPECT_THAT(files.operations, Contains("rename declared.json.tmp declared.json"));
  const std::size_t once = files.operations.size();
  note_declared(plan({"primary.margin=0.3"}), folder_.path(), nullptr, files);
  EXPECT_EQ(files.operations.size(), once) << "a record is never replaced";
}

/// Launches nothing, and sees whether the record was there before.
class DeclaredLaunch : public Declared {
 protected:
  LaunchReport launch(Files& files) {
    Prepared prepared;
    prepared.out_dir = folder_.path();
    prepared.identity = {"b", "l", "i", "d"};
    prepared.plan = plan();
    InterimSteps steps;
    steps.files = &files;
    steps.launch = [this](const Prepared& launched) {
      ++launches_;
      noted_ = declaration_of(launched.plan, folder_.path()).before;
      return LaunchReport{};
    };
    return launch_interim_analyses(prepared, steps);
  }
  int launches_ = 0, noted_ = 0;
};

TEST_F(DeclaredLaunch, StandsBeforeAnyRunStarts) {
  support::FakeFiles files;
  launch(files);
  EXPECT_EQ(noted_, 15);
}

TEST_F(DeclaredLaunch, NothingRunsWhereItCannotBeWritten) {
  // Each operation of the write by itself: whatever the disk refuses, no run may begin without its record.
  support::FakeFiles whole;
  launch(whole);
  std::filesystem::remove(path());
  launches_ = 0;
  for (std::size_t i = 0; i < whole.operations.size(); ++i) {
    support::FakeFiles files;
    files.fail(i, ENOSPC);
    try {
      launch(files);
    } catch (const MachineError& error) {
      EXPECT_EQ(launches_, 0) << whole.operations[i];
      EXPECT_THAT(error.what(), HasSubstr(folder_.path()));
    }
    // What a crash leaves is the old file or the new one.
    const Declaration left = declaration_of(plan(), folder_.path());
    EXPECT_TRUE(left.before == 0 || left.before == 15) << whole.operations[i];
    std::filesystem::remove(path());
    launches_ = 0;
  }
}

}  // namespace
}  // namespace lockstep
