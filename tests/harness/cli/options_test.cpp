#include "harness/cli/options.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ParsedLine parse(std::vector<const char*> words) {
  words.insert(words.begin(), "lockstep");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

TEST(CommandLine, RefusesATargetThatIsNoNumber) {
  for (const char* target : {"nan", "inf", "1e999", "x", "010"}) {
    const ParsedLine line = parse({"report", "o", "--format", "mllog", "--target", target});
    EXPECT_FALSE(line.command) << target;
    EXPECT_EQ(line.exit_code, 2) << target;
    EXPECT_THAT(line.err, HasSubstr("--target: must be a finite number, not '" + std::string(target) + "'"));
  }
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
  EXPECT_EQ(
      std::get<ReportOptions>(*parse({"report", "o", "--format", "mllog", "--target", "0.4"}).command).target,
      0.4);
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

}  // namespace
}  // namespace lockstep
