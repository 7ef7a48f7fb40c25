// The built program on input that is not what it should be: found at once, named, and with the right exit
// code.

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/base/files.h"
#include "tests/support/program.h"
#include "tests/support/suite_config.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kMatrix = R"(# Is this input found at once?
name: tiny
data: {source: synthetic}
steps: 6
seeds: 0
question: mechanism
ranks: real
certify_steps: 0
forced_steps: []
eval_every: 0
reference: {layout: 1x6}
axes: {layout: [2x3]}
)";

class BadInput : public testing::Test {
 protected:
  BadInput() { write("tiny.yaml", kMatrix); }
  void write(const std::string& name, const std::string& text) { write_text(folder_ / name, text); }
  void fifo(const std::string& name) { ASSERT_EQ(::mkfifo((folder_ / name).c_str(), 0600), 0); }
  ProgramEnd run(std::vector<std::string> words) {
    words.insert(words.begin(), LOCKSTEP_BINARY_DIR "/bin/lockstep");
    return Program(words, folder_.path(), environment_).end();
  }
  ProgramEnd shell(const std::string& command) {
    return Program({"/bin/bash", "-c", command}, folder_.path(), environment_).end();
  }
  void expect_usage_error(const std::vector<std::string>& words, const testing::Matcher<std::string>& says) {
    lockstep::expect_usage_error(run(words), says);
  }
  const TempFolder folder_;
  const std::string lockstep_ = LOCKSTEP_BINARY_DIR "/bin/lockstep ";
  const std::vector<std::pair<std::string, std::string>> environment_ = {
      {"LOCKSTEP_RANK", LOCKSTEP_BINARY_DIR "/bin/fake_rank"},
      {"LOCKSTEP_DATA", folder_ / "no data"},
      {"FAKE_RANKS", ""}};
};

std::string ts_text(int series, int steps) {
  std::string text = "@classLabel false\n@data\n";
  for (int s = 0; s < series; ++s) {
    for (int t = 0; t < steps; ++t) text += (t > 0 ? "," : "") + std::to_string((s * 7 + t) % 11);
    text += "\n";
  }
  return text;
}

std::string nested_objects() {
  std::string text, end;
  for (int i = 0; i < 100000; ++i) text += "{\"config\":", end += "}";
  return text + "1" + end;
}

TEST_F(BadInput, AConfigMayBeAPipe) {
  const ProgramEnd direct = run({"plan", "tiny.yaml"});
  ASSERT_EQ(direct.code, 0) << direct.err;
  for (const char* way : {"cat tiny.yaml | PROGRAM plan /dev/stdin", "PROGRAM plan <(cat tiny.yaml)",
                          "PROGRAM plan /dev/stdin < tiny.yaml"}) {
    std::string command = way;
    const ProgramEnd end = shell(command.replace(command.find("PROGRAM"), 7, lockstep_));
    EXPECT_EQ(end.code, 0) << way << end.err;
    EXPECT_EQ(end.out, direct.out) << way;
  }
  const ProgramEnd nothing = shell(lockstep_ + "plan <(cat tiny.yaml) --only layout==5x5");
  EXPECT_EQ(nothing.code, 6) << "the cells that there are come from the text that was read once";
  EXPECT_THAT(nothing.err, HasSubstr("2x3"));
  const ProgramEnd trained = shell(lockstep_ + "run <(cat tiny.yaml) --out o");
  EXPECT_THAT(trained.err, HasSubstr("finished")) << trained.err;
}

TEST_F(BadInput, FilesThatAreNoneAreNamedAndNotWaitedFor) {
  fifo("data.ts");
  write("good.ts", ts_text(8, 60));
  write("files.yaml",
        std::string(kMatrix).replace(std::string(kMatrix).find("{source: synthetic}"), 19,
                                     "{source: ts_files, train_file: good.ts, test_file: data.ts}"));
  expect_usage_error({"plan", "files.yaml"}, HasSubstr("data.ts: is a FIFO, not a file"));
  expect_usage_error({"plan", "."}, HasSubstr(".: is a folder, not a file"));
  expect_usage_error({"plan", "/dev/zero"},
                     HasSubstr("/dev/zero: has more than 1 MiB: too large for a config"));
  std::filesystem::create_directories(folder_ / "results");
  fifo("results/results.json");
  expect_usage_error({"report", "results"}, HasSubstr("results.json: is a FIFO, not a file"));
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directories(folder_ / name);
    fifo(std::string(name) + "/rank-0.trace");
  }
  expect_usage_error({"compare", "a", "b"}, HasSubstr("a/rank-0.trace: is a FIFO, not a file"));
  for (const char* name : {"a", "b"}) fifo(std::string(name) + "/run.json");
  expect_usage_error({"compare", "a", "b"}, HasSubstr("a/run.json is a FIFO, not a file"));
}

TEST_F(BadInput, JsonThatIsNestedTooDeepIsNamed) {
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directories(folder_ / name);
    write(std::string(name) + "/run.json", nested_objects());
    write(std::string(name) + "/results.json", nested_objects());
  }
  expect_usage_error(
      {"compare", "a", "b"},
      HasSubstr("a/run.json is damaged: nested deeper than 100 levels, at line 1, column 1001"));
  expect_usage_error({"report", "a"}, HasSubstr("a/results.json: nested deeper than 100 levels"));
}

TEST_F(BadInput, ALateRunWhoseFilesAreNestedIsDoneAnew) {
  ASSERT_EQ(run({"run", "tiny.yaml", "--out", "o"}).code, run({"run", "tiny.yaml", "--out", "o"}).code);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "o")) {
    const std::string name = entry.path().filename();
    if (name == "run.json" || name == "done" || name.ends_with(".result.json") || name == "judged.json") {
      write_text(entry.path().string(), nested_objects());
    }
  }
  const ProgramEnd end = run({"run", "tiny.yaml", "--out", "o"});
  EXPECT_EQ(end.signal, 0);
  EXPECT_THAT(end.err, HasSubstr("0 reused"));
  write("o/matrix.json", nested_objects());
  expect_usage_error({"run", "tiny.yaml", "--out", "o"}, HasSubstr("o/matrix.json: is malformed"));
}

TEST_F(BadInput, TooFewPairsOfAFileAreFoundBeforeAnythingRuns) {
  write("few.ts", ts_text(5, 28));  // 3 pairs each, one series held back
  write("many.ts", ts_text(20, 60));
  const std::string from = "{source: synthetic}";
  const auto config = [&](const std::string& data, const std::string& more = "") {
    std::string text = kMatrix;
    write("files.yaml", text.replace(text.find(from), from.size(), data) + more);
  };
  config("{source: ts_files, train_file: few.ts, test_file: many.ts, holdout_series: 4}");
  expect_usage_error(
      {"run", "files.yaml"},
      AllOf(HasSubstr("few.ts: cell '2x3': 3 training pairs are fewer than the 6 rows of a step; more come "
                      "with a smaller data.context_steps (16), data.action_steps (8) or data.stride (2)"),
            HasSubstr("data.holdout_series (4)")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  config("{source: ts_files, train_file: few.ts, test_file: many.ts, holdout_series: 2}");
  EXPECT_EQ(run({"plan", "files.yaml"}).code, 0) << "9 pairs";
  config("{source: ts_files, train_file: few.ts, test_file: many.ts, holdout_series: 4, drop_last: false}");
  EXPECT_EQ(run({"plan", "files.yaml"}).code, 0) << "without drop_last a step takes what there is";
}

TEST_F(BadInput, AnEvaluationThatIsTooSmallIsFoundBeforeAnythingRuns) {
  write("few.ts", ts_text(5, 28));
  write("many.ts", ts_text(20, 60));
  write("outcome.yaml",
        "name: o\nquestion: outcome\nseeds: 0..2\nsteps: 30\n"
        "data: {source: ts_files, train_file: many.ts, test_file: few.ts}\nreference: {layout: 1x6}\n"
        "axes: {layout: [2x3], lr: [0.001, 0.1]}\npower_controls: [{lr: 0.1}]\n");
  expect_usage_error(
      {"plan", "outcome.yaml"},
      HasSubstr("few.ts: cell '2x3': accuracy_24 needs 24 test pairs, and there are 15; more come with"));
  EXPECT_EQ(run({"plan", "outcome.yaml", "--set", "primary.metric=accuracy_3"}).code, 0);
  expect_usage_error({"plan", "outcome.yaml", "--set", "primary.metric=acuracy_3"},
                     HasSubstr("did you mean accuracy_3?"));
}

TEST_F(BadInput, NothingForeignReachesTheTerminalAsItIs) {
  const std::string hostile = "\x1b]0;title\x07\x1b[2J\xe2\x80\xae\xc2\x9b\xff";
  write("hostile" + hostile + ".yaml", "# question " + std::string("\x1b[31m\xe2\x80\xae") + "?\n" + kMatrix);
  const auto expect_clean = [](const ProgramEnd& end) {
    for (const std::string& text : {end.out, end.err}) {
      EXPECT_THAT(text, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\xe2\x80\xae")),
                              Not(HasSubstr("\xc2\x9b")), Not(HasSubstr("\xff"))));
    }
  };
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"plan", "hostile" + hostile + ".yaml"},
        {"plan", "tiny.yaml", "--out", hostile},
        {"run", "tiny.yaml", "--out", "o" + hostile},
        {"run", "tiny.yaml", "--out", "j" + hostile, "--json"},
        {"plan", "none" + hostile},
        {"plan", "tiny.yaml", "--set", hostile + "=1"},
        {"plan", "tiny.yaml", "--set", "steps=" + hostile},
        {"plan", "tiny.yaml", "--only", hostile},
        {hostile},
        {"explain", hostile},
        {"list", hostile},
        {"compare", hostile, "b"},
        {"report", hostile}}) {
    expect_clean(run(words));
  }
  write("hostile.ts", "@dimensions " + hostile + "\n@data\n" + hostile + "\n");
  expect_clean(run({"plan", "tiny.yaml", "--set", "data.source=ts_files", "--set",
                    "data.train_file=hostile.ts", "--set", "data.test_file=hostile.ts"}));
}

TEST_F(BadInput, ConfigsOfTheRepositoryPlan) {
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    // Their data may not be here: generated ones have as many pairs. Suites and trainers of somebody else's have no data of ours.
    std::vector<std::string> words{"plan", entry.path().string()};
    const bool of_a_command = read_file(entry.path().string()).text.find("\ntrainer: command") != std::string::npos;
    if (!of_a_command && !support::is_suite_config(entry.path())) words.insert(words.end(), {"--set", "data.source=synthetic"});
    const ProgramEnd end = run(words);
    EXPECT_EQ(end.code, 0) << entry.path() << end.err;
  }
}

}  // namespace
}  // namespace lockstep
