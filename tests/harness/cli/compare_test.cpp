#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <sstream>

#include "harness/answer/stats/outcome.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/cli/compare.h"
#include "harness/cli/options.h"
#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/record.h"
#include "harness/plan/config/canonical.h"
#include "reports/check.h"
#include "scenarios/energy/spec.h"
#include "tests/support/made_run.h"
#include "tests/support/out_fixture.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Mechanism flipped() {
  Mechanism mechanism;
  mechanism.verdict = VerdictKind::divergent;
  mechanism.sentence = "they part at step 17";
  mechanism.first_divergence = Divergence{17, "local_gradients", 5, "head.weight", DivergenceKind::bits, "3f", "3e", "…"};
  mechanism.cause = Cause{"unexplained", 0.1, "one bit", "look there"};
  mechanism.compared_steps = 17;
  return mechanism;
}

std::string text_of(const Mechanism& mechanism) { return check_text(document_of(mechanism), false, 0); }

TEST(ComparisonText, NamesThePlace) {
  EXPECT_EQ(text_of(flipped()),
            "✗ different from step 17: local gradients\n"
            "  one bit\n"
            "  they part at step 17\n"
            "  fix   look there\n"
            "  ✗ local gradients  rank 5, head.weight: expected 3f, found 3e\n");
}

TEST(ComparisonText, TellsARankThatIsUnknownFromAll) {
  Mechanism mechanism = flipped();
  mechanism.first_divergence->rank = kAllRanks;
  EXPECT_THAT(text_of(mechanism), HasSubstr("✗ local gradients  all ranks, head.weight"));
  mechanism.first_divergence->rank = kRankUnknown;
  EXPECT_THAT(text_of(mechanism), HasSubstr("✗ local gradients  rank unknown, head.weight"));
}

TEST(ComparisonText, SaysNoPlaceWhereThereIsNone) {
  Mechanism equal;
  equal.verdict = VerdictKind::identical;
  equal.sentence = "Identical: every bit of 20 steps is equal.";
  equal.facts = {{Mark::same, "loss", ""}, {Mark::none, "parameters", "only the run recorded it"}};
  EXPECT_EQ(text_of(equal), "✓ the same: every bit of 20 steps is equal\n  ✓ loss   – parameters  only the run recorded it\n");
}

TEST(ComparisonText, HasTwelveLinesWhateverThereIsToSayAndNeverCutsCauseFixAndWhatDecides) {
  Mechanism mechanism = flipped();
  for (int i = 0; i < 20; ++i) {
    mechanism.sentence += fmt::format(" Sentence {}.", i);
    mechanism.facts.push_back({Mark::same, fmt::format("what was compared, number {}", i), ""});
  }
  const std::string text = text_of(mechanism);
  EXPECT_LE(std::ranges::count(text, '\n'), 14);
  EXPECT_THAT(text, AllOf(HasSubstr("\n  one bit\n"), HasSubstr("\n  fix   look there\n")));
  mechanism.verdict = VerdictKind::inconclusive;
  mechanism.sentence = "Run A ended after 4 steps. Nothing could be compared: both traces end before the first step.";
  mechanism.decide = "lockstep check --ranks 1,3 -- COMMAND";
  mechanism.facts.clear();
  EXPECT_EQ(text_of(mechanism),
            "– undecided: nothing could be compared: both traces end before the first step\n"
            "  Run A ended after 4 steps.\n"
            "  to decide: lockstep check --ranks 1,3 -- COMMAND\n");
}

TEST(ComparisonText, ShowsNamesOfATraceOnOneLineEach) {
  Mechanism mechanism = flipped();
  const std::string hostile = "w\x1b]0;x\x07\xe2\x80\xae\n  cause: none";
  Divergence& first = *mechanism.first_divergence;
  first.where = first.phase = first.expected = first.actual = hostile;
  mechanism.sentence = mechanism.cause->evidence = hostile;
  const std::string text = text_of(mechanism);
  for (const char* raw : {"\x1b", "\x07", "\xe2\x80\xae", "\n  cause: none"}) EXPECT_THAT(text, testing::Not(HasSubstr(raw)));
}

TEST(ComparisonJson, HoldsTheSame) {
  const auto json = nlohmann::json::parse(comparison_json(flipped(), "a", "b"));
  EXPECT_EQ(json.at("verdict"), "divergent");
  EXPECT_EQ(json.at("first_divergence").at("step"), 17);
  EXPECT_EQ(json.at("first_divergence").at("rank"), 5);
  EXPECT_EQ(json.at("cause").at("code"), "unexplained");
  Mechanism odd;
  odd.band_used = std::nan("");
  EXPECT_EQ(nlohmann::json::parse(comparison_json(odd, "a", "b")).at("band_used"), "nan");
  EXPECT_TRUE(nlohmann::json::parse(comparison_json(odd, "a", "b")).at("cause").is_null());
}

/// A rank that has left two sums.
flight::Recorded two_sums(int rank) {
  flight::Recorded record{rank, 2};
  for (uint64_t i = 0; i < 2; ++i)
    record.entries.push_back({i, "data", i + 1, "all_reduce", "w", "Float", -1, 7, {4}, 0, 0, flight::State::completed});
  return record;
}

TEST(CompareFlightRecords, TellsTheFirstRankAndNumberInTheUsualForm) {
  const flight::Records a{{two_sums(0), two_sums(1)}};
  flight::Records b = a;
  EXPECT_EQ(compare_flight_records(a, b).verdict, VerdictKind::identical);
  b.read[1].entries[1].shape = {3};
  const Mechanism found = compare_flight_records(a, b);
  EXPECT_EQ(found.verdict, VerdictKind::divergent);
  EXPECT_THAT(text_of(found), AllOf(HasSubstr("different from step 7: flight record"), HasSubstr("rank 1, data 2 all_reduce w")));
  EXPECT_THAT(found.sentence, HasSubstr("size: expected all_reduce w Float [4], found all_reduce w Float [3]"));
}

TEST(CompareFlightRecords, CannotTellWithoutARanksRecordOrACommonCall) {
  const flight::Records a{{two_sums(0), two_sums(1)}};
  EXPECT_EQ(compare_flight_records(a, {{two_sums(0)}}).verdict, VerdictKind::inconclusive);
  EXPECT_EQ(compare_flight_records({{two_sums(0)}}, {{two_sums(1)}}).verdict, VerdictKind::inconclusive);
}

TEST(CompareFlightRecords, NamesTheFileThatItCouldNotRead) {
  const Mechanism found = compare_flight_records({{two_sums(0), two_sums(1)}}, {{two_sums(0)}, {{1, "b/rank_1", "is cut short"}}});
  EXPECT_EQ(found.verdict, VerdictKind::inconclusive);
  EXPECT_THAT(found.sentence, testing::AllOf(HasSubstr("b/rank_1: is cut short; nothing is said of rank 1"), testing::Not(HasSubstr("left no record"))));
}

TEST(ComparisonExitCode, FollowsTheVerdict) {
  EXPECT_EQ(comparison_exit_code(VerdictKind::identical, {}), 0);
  EXPECT_EQ(comparison_exit_code(VerdictKind::within_envelope, {}), 0);
  EXPECT_EQ(comparison_exit_code(VerdictKind::equivalent, {}), 0);
  EXPECT_EQ(comparison_exit_code(VerdictKind::divergent, {}), 1);
  EXPECT_EQ(comparison_exit_code(VerdictKind::inconclusive, {}), 5);
}

TEST(ComparisonExitCode, FollowsTheExpectation) {
  EXPECT_EQ(comparison_exit_code(VerdictKind::divergent, {"divergent"}), 0);
  EXPECT_EQ(comparison_exit_code(VerdictKind::identical, {"divergent"}), 1);
  EXPECT_EQ(comparison_exit_code(VerdictKind::within_envelope, {"identical"}), 1);
  EXPECT_EQ(comparison_exit_code(VerdictKind::inconclusive, {"identical"}), 5);
}

TEST(Words, AreSplitAtCommasAndKeptOnce) {
  EXPECT_THAT(split_lists({"html,md", "md,,json"}), ElementsAre("html", "md", "json"));
  EXPECT_THAT(split_lists({}), ElementsAre());
}

TEST(Words, AreRefusedWithTheNearestKnownOne) {
  EXPECT_NO_THROW(require_known("html", {"html", "md"}, "--format", "format"));
  try {
    require_known("htm", {"html", "md"}, "--format", "format");
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.problems().size(), 1U);
    EXPECT_EQ(error.problems()[0].suggestion, "html");
    EXPECT_THAT(error.problems()[0].text(), HasSubstr("--format: unknown format 'htm'; known are html, md"));
  }
}

// `compare --rule tost`, and what bits have in common with it, as a user calls them.

using testing::AllOf;
using testing::Not;

const std::vector<double> kScatter = {0.50, 0.52, 0.49, 0.51, 0.53, 0.48, 0.50, 0.52, 0.49, 0.51};

std::vector<double> shifted(double by, double wobble = 0.004) {
  std::vector<double> values;
  for (std::size_t i = 0; i < kScatter.size(); ++i)
    values.push_back(kScatter[i] + by + (i % 2 == 0 ? wobble : -wobble));
  return values;
}

struct End {
  int code = 0;
  std::string out;
};

class CompareOutcome : public testing::Test {
 protected:
  /// A folder with the reference 1x24 and the cell 2x12, which ends `by` lower or higher.
  void write(const std::string& name, double by, const Primary& primary = {"accuracy_24", 0.03, 0.05, 0.4}) {
    OutCell reference{"1x24 global", out_config(1, 24), ending_at(kScatter), true};
    OutCell cell{"2x12 global", out_config(2, 12), ending_at(shifted(by)), false};
    write_out(folder_ / name, {cell}, reference, primary);
  }
  CompareCommandOptions options(const std::string& a, const std::string& b) const {
    CompareCommandOptions o;
    o.run_a = folder_ / a;
    o.run_b = folder_ / b;
    o.rule = "tost";
    return o;
  }
  static End call(const CompareCommandOptions& o) {
    std::ostringstream out, err;
    const Console console{out, err};
    const int code = compare_command(o, console);
    return {code, out.str()};
  }
  static std::string refusal(const CompareCommandOptions& o) {
    try {
      call(o);
    } catch (const ConfigError& error) {
      std::string all;
      for (const ConfigProblem& problem : error.problems()) all += problem.text() + "\n";
      return all;
    }
    return "";
  }
  const TempFolder folder_;
};

TEST_F(CompareOutcome, FindsTwoFoldersEquivalent) {
  write("a", 0);
  write("b", 0.002);
  const End end = call(options("a", "b"));
  EXPECT_EQ(end.code, 0) << end.out;
  EXPECT_THAT(end.out, HasSubstr("equivalent: 2x12 global"));
  EXPECT_THAT(end.out, HasSubstr("learns the same"));
}

TEST_F(CompareOutcome, FindsAPlantedLossOfAccuracy) {
  write("a", 0);
  write("b", -0.1);
  const End end = call(options("a", "b"));
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.out, HasSubstr("divergent: 2x12 global"));
  EXPECT_THAT(end.out, HasSubstr("learns worse"));
  CompareCommandOptions expected = options("a", "b");
  expected.expect = {"divergent"};
  EXPECT_EQ(call(expected).code, 0);
}

TEST_F(CompareOutcome, ComparesOneCellWithAReferenceByName) {
  write("a", -0.1);
  CompareCommandOptions o = options("a:1x24 global", "a:2x12 global");
  o.json = true;
  const End end = call(o);
  EXPECT_EQ(end.code, 1);
  const auto json = nlohmann::json::parse(end.out);
  const auto& comparison = json.at("comparisons").at(0);
  EXPECT_EQ(comparison.at("verdict"), "divergent");
  EXPECT_EQ(comparison.at("statistics").at("n"), 10);
  EXPECT_NEAR(comparison.at("statistics").at("mean").get<double>(), -0.1, 1e-12);
  EXPECT_EQ(comparison.at("statistics").at("margin"), 0.03);
  EXPECT_TRUE(comparison.at("question_differences").empty());  // Another layout is no other question.
}

TEST_F(CompareOutcome, ListsTheCellsThatThereAre) {
  write("a", 0);
  write("b", 0);
  EXPECT_THAT(refusal(options("a:2x12 local", "b")),
              AllOf(HasSubstr("there is no cell '2x12 local'"), HasSubstr("2x12 global, 1x24 global")));
  EXPECT_THAT(refusal(options("none", "b")), HasSubstr("none: no such folder"));
  EXPECT_THAT(refusal(options("a", "a")), HasSubstr("both sides are the same runs"));
}

TEST_F(CompareOutcome, RefusesAnotherQuestionUnlessAskedTo) {
  write("a", 0);
  OutCell reference{"1x24 global", out_config(1, 24), ending_at(kScatter), true};
  OutCell cell{"2x12 global", out_config(2, 12), ending_at(shifted(0)), false};
  energy(cell.config).data.stride = 4;
  cell.config.steps = 200;
  cell.config.eval_every = 50;
  write_out(folder_ / "b", {cell}, reference, {"accuracy_24", 0.05, 0.05, 0.4});
  EXPECT_THAT(
      refusal(options("a", "b")),
      AllOf(HasSubstr("data.stride is 4 against 2"), HasSubstr("steps is 200 steps against 100 steps"),
            HasSubstr("eval_every is 50 steps against 25 steps"),
            HasSubstr("primary.margin is 0.05 against 0.03"), HasSubstr("--across")));
  CompareCommandOptions across = options("a", "b");
  across.across = true;
  across.margin = 0.04;
  const End end = call(across);
  EXPECT_EQ(end.code, 0) << end.out;
  EXPECT_THAT(end.out, HasSubstr("across questions: data.stride is 4 against 2"));
  EXPECT_THAT(end.out, Not(HasSubstr("primary.margin")));  // The one that is given replaces both.
}

TEST_F(CompareOutcome, CountsSamplesWhereTheBatchGrows) {
  OutCell small{"1x3", out_config(1, 3), ending_at(kScatter), true};
  small.config.steps = 800;
  small.config.eval_every = 200;
  OutCell big{"2x12", out_config(2, 12), ending_at(shifted(0)), false};
  write_out(folder_ / "a", {big}, small);
  EXPECT_EQ(call(options("a:1x3", "a:2x12")).code, 0);
  big.config.steps = 200;
  write_out(folder_ / "b", {big}, small);
  EXPECT_THAT(refusal(options("b:1x3", "b:2x12")), HasSubstr("steps is 4800 samples against 2400 samples"));
}

TEST_F(CompareOutcome, RefusesSeedsWithoutAPartner) {
  write("a", 0);
  OutCell reference{"1x24 global", out_config(1, 24), ending_at(kScatter), true};
  OutCell cell{"2x12 global", out_config(2, 12), ending_at(shifted(0)), false};
  cell.seeds.pop_back();
  cell.seeds.back().seed = 17;
  write_out(folder_ / "b", {cell}, reference);
  EXPECT_THAT(refusal(options("a", "b")),
              AllOf(HasSubstr("seeds without a partner: 8, 9 (2x12 global"), HasSubstr("17 (2x12 global")));
}

TEST_F(CompareOutcome, NamesRunsThatAreGone) {
  write("a", 0);
  write("b", 0);
  std::filesystem::remove_all(folder_ / "b/runs/2x12-global-s4");
  EXPECT_THAT(refusal(options("a", "b")), HasSubstr("the runs of seeds 4 no longer exist"));
}

TEST_F(CompareOutcome, FailsOnAMetricThatIsNotANumber) {
  write("a", 0);
  OutCell reference{"1x24 global", out_config(1, 24), ending_at(kScatter), true};
  OutCell cell{"2x12 global", out_config(2, 12), ending_at(shifted(0)), false};
  cell.seeds[3].accuracy.back() = std::nan("");
  write_out(folder_ / "b", {cell}, reference);
  const End end = call(options("a", "b"));
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.out, AllOf(HasSubstr("failed: nonfinite"), HasSubstr("accuracy_24 is nan")));
}

TEST_F(CompareOutcome, LeavesSingleRunsUndecidedWithTheSeedsNeeded) {
  write("a", 0);
  const End end = call(options("a/runs/1x24-global-s0", "a/runs/2x12-global-s0"));
  EXPECT_EQ(end.code, 5);
  EXPECT_THAT(end.out, AllOf(HasSubstr("inconclusive"), HasSubstr("seeds needed: 2 or more")));
  // Without a matrix around them nothing declares a margin.
  std::filesystem::rename(folder_ / "a/results.json", folder_ / "a/gone.json");
  EXPECT_THAT(refusal(options("a/runs/1x24-global-s0", "a/runs/2x12-global-s0")), HasSubstr("--margin"));
}

TEST_F(CompareOutcome, RefusesMarginsAndAlphasOutOfRange) {
  write("a", 0);
  write("b", 0);
  CompareCommandOptions o = options("a", "b");
  o.margin = 0.0;
  o.alpha = 0.5;
  EXPECT_THAT(refusal(o), AllOf(HasSubstr("the margin is 0"), HasSubstr("alpha is 0.5")));
  o = options("a", "b");
  o.metric = "cross_entropy_24";
  EXPECT_THAT(refusal(o), HasSubstr("--margin"));
  o = options("a", "b");
  o.rule = "tots";
  EXPECT_THAT(refusal(o), AllOf(HasSubstr("known are bits, tost"), HasSubstr("did you mean tost")));
  o.rule = "bits";
  o.margin = 0.1;
  EXPECT_THAT(refusal(o), HasSubstr("--margin: is allowed with --rule tost, not with --rule bits"));
}

TEST_F(CompareOutcome, NamesCellsWithoutAPartner) {
  OutCell reference{"1x24 global", out_config(1, 24), ending_at(kScatter), true};
  const OutCell one{"2x12 global", out_config(2, 12), ending_at(shifted(0)), false};
  const OutCell two{"3x8 global", out_config(3, 8), ending_at(shifted(0)), false};
  const OutCell three{"4x6 global", out_config(4, 6), ending_at(shifted(0)), false};
  write_out(folder_ / "a", {one, two}, reference);
  write_out(folder_ / "b", {one, three}, reference);
  EXPECT_THAT(refusal(options("a", "b")), AllOf(HasSubstr("3x8 global"), HasSubstr("4x6 global")));
  CompareCommandOptions across = options("a", "b");
  across.across = true;
  EXPECT_THAT(call(across).out,
              AllOf(HasSubstr("equivalent: 2x12 global"), HasSubstr("not compared: the cell 3x8")));
}

/// Two traced runs whose run.json says what they are.
class CompareBits : public CompareOutcome {
 protected:
  CompareCommandOptions traced(const RunConfig& a, const RunConfig& b) {
    const auto write = [&](const std::string& name, const RunConfig& config) {
      PlannedRun run;
      run.id = name;
      run.config = config;
      prepare_run_folder(folder_ / name, run, {});
      support::FakeRun fake;
      fake.steps = support::steps_up_to(3);
      fake.config_hash = config_hash(config);
      support::write_fake_run(folder_ / name, fake);
    };
    write("a", a);
    write("b", b);
    CompareCommandOptions o = options("a", "b");
    o.rule = "bits";
    return o;
  }
};

TEST_F(CompareBits, RefusesOtherDataAndOtherTrainers) {
  RunConfig b = out_config(3, 8);
  b.data.seed = 5;
  CompareCommandOptions o = traced(out_config(3, 8), b);
  EXPECT_THAT(refusal(o), AllOf(HasSubstr("data.seed is 5 against 0"), HasSubstr("--across")));
  o.across = true;
  const End end = call(o);
  EXPECT_EQ(end.code, 0) << end.out;
  EXPECT_THAT(end.out, HasSubstr("across questions: data.seed is 5 against 0"));
  o.json = true;
  EXPECT_EQ(nlohmann::json::parse(call(o).out).at("question_differences").at(0).at("what"), "data.seed");
}

TEST_F(CompareBits, RefusesTheTraceOfAnotherRun) {
  RunConfig b = out_config(3, 8);
  b.steps = 700;
  const CompareCommandOptions o = traced(out_config(3, 8), b);
  const std::string file = "/rank-0.trace";
  std::filesystem::copy_file(folder_ / ("b" + file), folder_ / ("a" + file),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(refusal(o), AllOf(HasSubstr("a/rank-0.trace: does not belong to the run.json beside it"),
                                HasSubstr(config_hash(b))));
}

// The runs part at step 0, and the damage lies behind: it is told all the same.
TEST_F(CompareBits, RefusesATraceThatIsDamagedBehindTheFirstDivergence) {
  const CompareCommandOptions o = traced(out_config(3, 8), out_config(3, 8));
  support::FakeRun other;
  other.steps = support::steps_up_to(3);
  other.config_hash = config_hash(out_config(3, 8));
  other.fault = [](support::FakeStep& it) { it.loss += 1; };
  support::write_fake_run(folder_ / "b", other);
  EXPECT_EQ(call(o).code, 1);
  const std::string path = folder_ / "b/rank-2.trace";
  std::string trace = read_text(path);
  trace[trace.size() - 60] ^= 1;
  write_text(path, trace);
  EXPECT_THROW(
      {
        try {
          call(o);
        } catch (const TraceError& error) {
          EXPECT_THAT(error.what(),
                      AllOf(HasSubstr(path + ": at offset "), HasSubstr("after step 1: a frame is damaged")));
          throw;
        }
      },
      TraceError);
}

TEST_F(CompareBits, RefusesADamagedDescription) {
  const CompareCommandOptions o = traced(out_config(3, 8), out_config(3, 8));
  nlohmann::json run = nlohmann::json::parse(read_text(folder_ / "a/run.json"));
  run["config"]["steps"] = 9;
  write_text(folder_ / "a/run.json", run.dump());
  EXPECT_THAT(refusal(o), AllOf(HasSubstr("a/run.json is damaged: its checksum is "),
                                HasSubstr("run its matrix again to retrain this run")));
}

TEST_F(CompareBits, TakesAnotherLengthOrCacheForTheSameQuestion) {
  RunConfig b = out_config(3, 8);
  b.steps = 700;
  energy(b).negatives = Negatives::local;
  energy(b).data.cache = false;
  const End end = call(traced(out_config(3, 8), b));
  EXPECT_EQ(end.code, 0) << end.out;
  EXPECT_THAT(end.out, HasSubstr("✓ the same: every bit"));
}

TEST_F(CompareBits, HalfARunPassesOnlyIfNoMoreIsAskedFor) {
  CompareCommandOptions o = traced(out_config(3, 8), out_config(3, 8));
  support::FakeRun half;
  half.steps = support::steps_up_to(2);
  half.config_hash = config_hash(out_config(3, 8));
  support::write_fake_run(folder_ / "b", half);
  EXPECT_EQ(call(o).code, 5);
  EXPECT_THAT(call(o).out, AllOf(HasSubstr("– undecided: "), HasSubstr("b ends after step 1, and ")));
  o.steps = 2;
  EXPECT_EQ(call(o).code, 0);
  o.steps = 0;
  o.expect = {"identical,inconclusive"};
  EXPECT_EQ(call(o).code, 0);
  o.rule = "tost";
  o.steps = 2;
  EXPECT_THAT(refusal(o), HasSubstr("--steps"));
}

TEST_F(CompareBits, RefusesABandOfTooFewRepeats) {
  CompareCommandOptions o = traced(out_config(3, 8), out_config(3, 8));
  o.repeats = {folder_ / "a", folder_ / "a", folder_ / "a"};
  EXPECT_THAT(refusal(o), HasSubstr("--repeat: 3 are given, and measuring the tolerance takes 4 or more"));
}

/// Two free runs of a matrix and what it has left beside them.
class CompareBeside : public CompareBits {
 protected:
  void write_run(const std::string& name, const RunConfig& config, const support::FakeRun& fake, double noise = 3e-7) {
    PlannedRun run;
    run.id = name;
    run.config = config;
    prepare_run_folder(folder_ / name, run, {});
    support::FakeRun own = fake;
    own.config_hash = config_hash(config);
    own.world_size = config.layout.world_size;
    own.noise = noise;
    own.noise_seed = std::hash<std::string>{}(name);
    support::write_fake_run(folder_ / name, own);
    write_text(folder_ / (name + "/done"), "{}");
  }
  /// A reference and a cell of seed 0, and their forced runs; `fault` is the cell's.
  CompareCommandOptions matrix(std::function<void(support::FakeStep&)> fault) {
    RunConfig reference = out_config(1, 24), cell = out_config(3, 8);
    reference.steps = cell.steps = 30;
    support::FakeRun free, forced;
    free.steps = support::steps_up_to(30);
    forced.steps = {0, 10, 20};
    forced.forced = forced.term_sums = true;
    reference.snapshot_steps = forced.steps;
    write_run("a", reference, free);
    reference.snapshot_steps.clear();
    reference.eval_every = 0;
    support::FakeRun twin = forced;
    twin.wide = true;
    reference.forced = {"a", forced.steps, 0, {}};
    write_run("a-forced", reference, forced);
    reference.forced.twin = true;
    write_run("a-twin", reference, twin, 0);
    free.fault = forced.fault = twin.fault = std::move(fault);
    write_run("b", cell, free);
    cell.eval_every = 0;
    cell.forced = {"a", forced.steps, 0, {}};
    write_run("b-forced", cell, forced);
    cell.forced.twin = true;
    write_run("b-twin", cell, twin, 0);
    CompareCommandOptions o = options("a", "b");
    o.rule = "bits";
    return o;
  }
};

TEST_F(CompareBeside, ForcedRunsOfTheMatrixDecide) {
  const CompareCommandOptions o = matrix(nullptr);
  const End end = call(o);
  EXPECT_EQ(end.code, 0) << end.out;
  EXPECT_THAT(end.out, AllOf(HasSubstr("✓ the same within rounding: "),
                             HasSubstr("The same matrix has forced runs: a-forced and b-forced, with their float64 twins")));
  // Without one that has finished nothing is decided.
  std::filesystem::remove(folder_ / "b-forced/done");
  const End open = call(o);
  EXPECT_EQ(open.code, 5) << open.out;
  EXPECT_THAT(open.out, HasSubstr("– undecided: "));
}

TEST_F(CompareBeside, ForcedRunsFindWhatFreeOnesCannotShow) {
  const End end = call(matrix([](support::FakeStep& it) {
    if (it.step < 10) return;
    for (float& value : support::tensor_of(it.reduced_gradients, "head.weight")) value *= 1.01F;
  }));
  EXPECT_EQ(end.code, 1) << end.out;
  EXPECT_THAT(end.out, AllOf(HasSubstr("✗ different from step"), HasSubstr("step 10"), HasSubstr("head.weight")));
}

TEST_F(CompareBeside, NamesTheSeedThatTheMatrixForced) {
  matrix(nullptr);
  RunConfig reference = out_config(1, 24), cell = out_config(3, 8);
  reference.steps = cell.steps = 30;
  reference.seed = cell.seed = 7;
  support::FakeRun free;
  free.steps = support::steps_up_to(30);
  write_run("a7", reference, free);
  write_run("b7", cell, free);
  CompareCommandOptions o = options("a7", "b7");
  o.rule = "bits";
  const End end = call(o);
  EXPECT_EQ(end.code, 5) << end.out;
  EXPECT_THAT(end.out, HasSubstr("has forced runs of seed 0"));
}

TEST_F(CompareBits, SaysThatAnOutputFolderIsNoRun) {
  write("a", 0);
  write("b", 0);
  CompareCommandOptions o = options("a", "b");
  o.rule = "bits";
  EXPECT_THAT(refusal(o), HasSubstr("is the output folder of a matrix"));
}

}  // namespace
}  // namespace lockstep
