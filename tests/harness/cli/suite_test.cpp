// `lockstep run` of a config that names a suite, as a user meets it.

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/base/files.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr const char* kHead = R"(# Does it survive?
name: tried
suite: program
program:
  setup: "printf 'step 1\n' > {out}/state"
  resume: "cp {out}/state {resume}"
  failures: [kill, disk_full]
)";
constexpr const char* kGood = "  save: \"t={out}/.state.new; printf 'step 2\\\\n' > $t && sync $t && mv $t {out}/state && sync {out}\"\n";
constexpr const char* kInPlace = "  save: \"printf 'step 2\\\\n' > {out}/state\"\n";

class SuiteProgram : public testing::Test {
 protected:
  void write(const std::string& save) { write_text(folder_ / "tried.yaml", kHead + save); }
  ProgramEnd run(std::vector<std::string> words) {
    words.insert(words.begin(), LOCKSTEP_BINARY_DIR "/bin/lockstep");
    return Program(words, folder_.path(), {{"LOCKSTEP_RANK", LOCKSTEP_BINARY_DIR "/bin/fake_rank"}}).end();
  }
  const TempFolder folder_;
};

TEST_F(SuiteProgram, EndsWith0WhereNothingIsFound) {
  write(kGood);
  const ProgramEnd end = run({"run", "tried.yaml"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("No fault found"));
  for (const char* file : {"results.json", "report.html", "summary.md", "junit.xml", "operations.jsonl", "matrix.json"})
    EXPECT_TRUE(std::filesystem::exists(folder_ / ("out/tried/" + std::string(file)))) << file;
  EXPECT_EQ(run({"report", "out/tried"}).out.substr(0, 5), end.out.substr(0, 5));
}

TEST_F(SuiteProgram, EndsWith1AndAScriptThatFindsTheFaultAgain) {
  write(kInPlace);
  const ProgramEnd end = run({"run", "tried.yaml", "--json"});
  EXPECT_EQ(end.code, 1) << end.err;
  const nlohmann::json suite = nlohmann::json::parse(end.out).at("laboratory");
  EXPECT_GT(suite.at("faults"), 0);
  const std::string replay = suite.at("findings").at(0).at("replay");
  ASSERT_THAT(replay, HasSubstr("sh "));
  const std::string script = replay.substr(3);
  const ProgramEnd again = Program({"/bin/sh", script}, folder_.path(), {}).end();
  EXPECT_EQ(again.code, 1) << again.err;
  EXPECT_THAT(again.out, HasSubstr("1 trial (1 case), 1 wrong"));
}

TEST_F(SuiteProgram, SaysWhatItWouldDoAndWhatIsWrong) {
  write(kGood);
  const ProgramEnd plan = run({"plan", "tried.yaml"});
  EXPECT_EQ(plan.code, 0);
  EXPECT_THAT(plan.out, HasSubstr("suite program"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  EXPECT_EQ(run({"run", "tried.yaml", "--only", "kill@9:9"}).code, 6);
  EXPECT_EQ(run({"run", "tried.yaml", "--seeds", "0..3"}).code, 2);
  const ProgramEnd wrong = run({"run", "tried.yaml", "--set", "program.points=-1"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--set program.points=-1"));
  write("  save: true\n");
  EXPECT_THAT(run({"run", "tried.yaml"}).err, HasSubstr("tried.yaml:8:3: program.save lacks the placeholder {out}"));
}

TEST_F(SuiteProgram, RunsWithoutAnybodyWaitingAndRefusesWhatHasNoUse) {
  write_text(folder_ / "tried.yaml", "name: tried\nsuite: saver\nsaver: {search: kill, world_sizes: [1], points: 1, "
                                     "process_points: 1, planted: false}\n");
  const ProgramEnd begun = run({"run", "tried.yaml", "--detach"});
  EXPECT_EQ(begun.code, 0) << begun.err;
  EXPECT_THAT(begun.out, HasSubstr("lockstep wait "));
  EXPECT_EQ(run({"wait", "out/tried"}).code, 0);
  EXPECT_THAT(run({"status", "out/tried"}).out, HasSubstr("trials have run; exit status 0"));
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--launcher", "torchrun"}, {"--part", "0.1"}, {"--seeds", "0..2"}}) {
    std::vector<std::string> all{"run", "tried.yaml"};
    all.insert(all.end(), words.begin(), words.end());
    const ProgramEnd refused = run(all);
    EXPECT_EQ(refused.code, 2) << words[0];
    EXPECT_THAT(refused.err, HasSubstr(words[0]));
  }
}

}  // namespace
}  // namespace lockstep
