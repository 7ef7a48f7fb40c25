#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <span>
#include <sstream>

#include "harness/base/files.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/cli/options.h"
#include "harness/lib/flight/dump.h"
#include "harness/lib/flight/ring.h"
#include "harness/run/process_state.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ParsedLine parse(std::vector<const char*> words) {
  words.insert(words.begin(), "lockstep");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

TEST(CommandLine, ReadsARun) {
  const ParsedLine line =
      parse({"run", "--set", "steps=3", "c.yaml", "--set", "layout=[3x8, 8x3]", "--only", "!local", "--seeds",
             "0..2", "--out", "o", "--jobs", "3", "--fresh", "--json"});
  ASSERT_TRUE(line.command) << line.err;
  const auto& run = std::get<RunOptions>(*line.command);
  EXPECT_EQ(run.selection.config, "c.yaml");
  EXPECT_THAT(run.selection.set, ElementsAre("steps=3", "layout=[3x8, 8x3]"));
  EXPECT_EQ(run.selection.only, "!local");
  EXPECT_EQ(run.selection.seeds, "0..2");
  EXPECT_EQ(run.selection.out, "o");
  EXPECT_EQ(run.selection.jobs, 3);
  EXPECT_TRUE(run.fresh && run.json);
  EXPECT_FALSE(run.dry_run);
}

TEST(CommandLine, TakesTheLastOfWhatCanBeThereOnce) {
  const ParsedLine line = parse({"run", "c.yaml", "--only", "a", "--only", "b", "--out", "x", "--out", "y"});
  ASSERT_TRUE(line.command) << line.err;
  EXPECT_EQ(std::get<RunOptions>(*line.command).selection.only, "b");
  EXPECT_EQ(std::get<RunOptions>(*line.command).selection.out, "y");
}

TEST(CommandLine, ReadsTheOtherCommands) {
  EXPECT_TRUE(std::get<PlanOptions>(*parse({"plan", "c.yaml", "--json"}).command).json);
  const auto compare = std::get<CompareCommandOptions>(
      *parse({"compare", "--repeat", "r1", "a", "b", "--repeat", "r2", "--expect", "identical,divergent"})
           .command);
  EXPECT_EQ(compare.run_a, "a");
  EXPECT_EQ(compare.run_b, "b");
  EXPECT_THAT(compare.repeats, ElementsAre("r1", "r2"));
  EXPECT_THAT(compare.expect, ElementsAre("identical,divergent"));
  EXPECT_THAT(std::get<ReportOptions>(*parse({"report", "--format", "html,md", "out"}).command).formats,
              ElementsAre("html,md"));
  EXPECT_EQ(std::get<ListOptions>(*parse({"list", "losses"}).command).what, "losses");
  EXPECT_TRUE(std::get<DoctorOptions>(*parse({"doctor", "--json"}).command).json);
  EXPECT_EQ(std::get<SchemaOptions>(*parse({"schema"}).command).of, "config");
  EXPECT_EQ(std::get<SchemaOptions>(*parse({"schema", "results"}).command).of, "results");
}

TEST(CommandLine, TakesFormsIntoFilesAndOneOnStandardOutput) {
  const auto outputs = [](std::vector<const char*> words) {
    return std::get<StatusOptions>(*parse(std::move(words)).command).outputs;
  };
  EXPECT_EQ(outputs({"status", "o"}).json, "");
  EXPECT_EQ(outputs({"status", "--json", "o"}).json, "-");
  EXPECT_EQ(outputs({"status", "o", "--json=f.json", "--md", "-"}).json, "f.json");
  EXPECT_EQ(outputs({"status", "o", "--html", "f.html"}).html, "f.html");
}

TEST(CommandLine, ReadsTheRulesOfACompare) {
  const auto bits = std::get<CompareCommandOptions>(*parse({"compare", "a", "b"}).command);
  EXPECT_EQ(bits.rule, "bits");
  EXPECT_FALSE(bits.margin || bits.alpha || bits.across);
  EXPECT_EQ(bits.steps, 0);
  EXPECT_EQ(std::get<CompareCommandOptions>(*parse({"compare", "a", "b", "--steps", "18"}).command).steps, 18);
  EXPECT_EQ(parse({"compare", "a", "b", "--steps", "0"}).exit_code, 2);
  const auto tost = std::get<CompareCommandOptions>(
      *parse({"compare", "--rule", "tost", "o:8x3 global", "o:8x3 local", "--metric", "accuracy_6",
              "--margin", "0.02", "--alpha", "0.01", "--across"})
           .command);
  EXPECT_EQ(tost.rule, "tost");
  EXPECT_EQ(tost.run_a, "o:8x3 global");
  EXPECT_EQ(tost.metric, "accuracy_6");
  EXPECT_EQ(tost.margin, 0.02);
  EXPECT_EQ(tost.alpha, 0.01);
  EXPECT_TRUE(tost.across);
}

TEST(CommandLine, EndsWithTwoForWhatItCannotRead) {
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{{},
                                             {"jump"},
                                             {"run"},
                                             {"run", "a", "b"},
                                             {"run", "a", "--jobs", "x"},
                                             {"run", "a", "--jobs", "-1"},
                                             {"compare", "a"},
                                             {"plan", "a", "--unknown"}}) {
    const ParsedLine line = parse(words);
    EXPECT_FALSE(line.command);
    EXPECT_EQ(line.exit_code, 2);
    EXPECT_FALSE(line.err.empty());
    EXPECT_TRUE(line.out.empty());
  }
}

TEST(CommandLine, TellsVersionCommitAndLibtorch) {
  EXPECT_THAT(parse({"--version"}).out,
              testing::MatchesRegex("lockstep [0-9.]+ \\((commit [0-9a-f]+(\\+changes)?|unknown commit), "
                                    "(LibTorch [0-9.]+|no lockstep-rank beside it)\\)\n"));
}

TEST(CommandLine, GivesHelpAndVersionOnStandardOutput) {
  for (const char* word : {"--help", "--help-all", "--version"}) {
    const ParsedLine line = parse({word});
    EXPECT_FALSE(line.command);
    EXPECT_EQ(line.exit_code, 0);
    EXPECT_THAT(line.out, HasSubstr("lockstep"));
    EXPECT_TRUE(line.err.empty());
  }
}

TEST(CommandText, GivesTheLineBackToAShell) {
  MatrixSelection selection;
  selection.config = "my configs/c.yaml";
  selection.set = {"layout=[3x8, 8x3]", "steps=3"};
  selection.only = "negatives=='local'";
  selection.seeds = "0..9";
  selection.out = "o";
  selection.jobs = 2;
  EXPECT_EQ(command_text(selection),
            "lockstep run 'my configs/c.yaml' --set 'layout=[3x8, 8x3]' --set steps=3 "
            "--only 'negatives=='\\''local'\\''' --seeds 0..9 --out o --jobs 2");
}

TEST(List, AlignsNamesUnderTheirKind) {
  const std::vector<ListedKind> kinds = {{"losses", {{"a", "first"}, {"long_name", "second"}}},
                                         {"mutants", {}}};
  EXPECT_EQ(list_text(kinds), "losses\n  a          first\n  long_name  second\n\nmutants\n  (none)\n");
  EXPECT_EQ(list_text({kinds[0]}), "a          first\nlong_name  second\n");
  const auto json = nlohmann::json::parse(list_json(kinds));
  EXPECT_EQ(json.at("losses").at(1).at("name"), "long_name");
  EXPECT_TRUE(json.at("mutants").empty());
}

TEST(List, NamesTheTrainerOfWhatFitsOneAlone) {
  const std::vector<ListedKind> kinds = {{"mutants", {{"any", "first"}, {"inside", "second", "energy"}}}};
  EXPECT_EQ(list_text(kinds), "any     first\ninside  second (trainer energy)\n");
  const auto json = nlohmann::json::parse(list_json(kinds)).at("mutants");
  EXPECT_FALSE(json.at(0).contains("trainer"));
  EXPECT_EQ(json.at(1).at("trainer"), "energy");
}

TEST(List, TakesTheQuestionFromAConfigsFirstLine) {
  const TempFolder folder;
  write_text(folder / "b.yaml", "# Does it?\nname: b\n");
  write_text(folder / "a.yaml", "name: a\n");
  write_text(folder / "schema.json", "{}");
  const auto configs = configs_in(folder.path());
  ASSERT_EQ(configs.size(), 2U);
  EXPECT_EQ(configs[0].name, folder / "a.yaml");
  EXPECT_EQ(configs[0].help, "");
  EXPECT_EQ(configs[1].help, "Does it?");
  EXPECT_TRUE(configs_in(folder / "none").empty());
}

class ConfigPath : public testing::Test {
 protected:
  ConfigPath() {
    std::filesystem::create_directories(folder_ / "configs");
    write_text(folder_ / "configs/smoke.yaml", "# Does it?\nname: smoke\n");
    write_text(folder_ / "own.yaml", "# Does it?\nname: own\n");
    std::filesystem::current_path(folder_.path());
  }
  ~ConfigPath() override { std::filesystem::current_path(before_); }
  const std::filesystem::path before_ = std::filesystem::current_path();
  const TempFolder folder_;
};

TEST_F(ConfigPath, IsTheFileThatWasNamed) {
  for (const std::string name : {"own.yaml", "configs/smoke.yaml"}) EXPECT_EQ(config_path(name), name);
  EXPECT_EQ(config_path(folder_ / "own.yaml"), folder_ / "own.yaml");
}

TEST_F(ConfigPath, OfANameIsInTheFolderOfConfigs) {
  EXPECT_EQ(config_path("smoke"), "configs/smoke.yaml");
  EXPECT_EQ(config_path("smoke.yaml"), "configs/smoke.yaml");
  EXPECT_EQ(config_path("configs/smoke"), "configs/smoke.yaml");
}

TEST_F(ConfigPath, OfAFileThatIsNowhereStaysAsItWasGiven) {
  for (const std::string name : {"none.yaml", "configs/none.yaml", "../own.yaml", ""})
    EXPECT_EQ(config_path(name), name);
  EXPECT_THROW(config_path("none"), ConfigError);
}

TEST_F(ConfigPath, IsAboveTheProgramWhereTheWorkingFolderHasNone) {
  std::filesystem::remove_all(folder_ / "configs");
  EXPECT_EQ(config_path("smoke"), LOCKSTEP_SOURCE_DIR "/configs/smoke.yaml");
}

using testing::AllOf;
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

TEST(Tools, GetCallsWithTimesFromFlightRecords) {
  const TempFolder run;
  leave_records(run.path(), false);
  std::ostringstream out, err;
  write_tools({{"run", run.path()}}, {"", "", run / "calls.json"}, {out, err});
  EXPECT_EQ(err.str(), "");
  const nlohmann::json events = nlohmann::json::parse(read_text(run / "calls.json"))["traceEvents"];
  std::set<int> ranks;
  for (const nlohmann::json& event : events)
    if (event["name"] == "all_reduce") ranks.insert(event["tid"].get<int>());
  EXPECT_THAT(ranks, ElementsAre(0, 1)) << events;
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
