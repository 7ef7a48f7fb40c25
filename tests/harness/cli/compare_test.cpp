#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <functional>
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
#include "tests/support/said.h"
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

TEST(ComparisonText, NamesThePlaceAndSaysNoneWhereThereIsNone) {
  support::Said said;
  Mechanism mechanism = flipped();
  said("a place", text_of(mechanism));
  for (const int rank : {kAllRanks, kRankUnknown}) {
    mechanism.first_divergence->rank = rank;
    said(rank == kAllRanks ? "all ranks" : "rank unknown", text_of(mechanism));
  }
  Mechanism equal;
  equal.verdict = VerdictKind::identical;
  equal.sentence = "Identical: every bit of 20 steps is equal.";
  equal.facts = {{Mark::same, "loss", ""}, {Mark::none, "parameters", "only the run recorded it"}};
  said("identical", text_of(equal));
  mechanism.verdict = VerdictKind::inconclusive;
  mechanism.sentence = "Run A ended after 4 steps. Nothing could be compared: both traces end before the first step.";
  mechanism.decide = "lockstep check --ranks 1,3 -- COMMAND";
  said("undecided", text_of(mechanism));
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

TEST(ComparisonExitCode, FollowsTheVerdictAndTheExpectation) {
  using V = VerdictKind;
  const std::tuple<V, std::vector<std::string>, int> rows[] = {
      {V::identical, {}, 0},           {V::within_envelope, {}, 0},        {V::equivalent, {}, 0},
      {V::divergent, {}, 1},           {V::inconclusive, {}, 5},           {V::divergent, {"divergent"}, 0},
      {V::identical, {"divergent"}, 1}, {V::within_envelope, {"identical"}, 1}, {V::inconclusive, {"identical"}, 5}};
  for (const auto& [verdict, expected, code] : rows)
    EXPECT_EQ(comparison_exit_code(verdict, expected), code) << name_of(verdict);
}

TEST(Words, AreSplitAtCommasAndKeptOnce) {
  EXPECT_THAT(split_lists({"html,md", "md,,json"}), ElementsAre("html", "md", "json"));
  EXPECT_THAT(split_lists({}), ElementsAre());
}

TEST(Words, AreRefusedWithTheNearestKnownOne) {
  EXPECT_NO_THROW(require_known("html", {"html", "md"}, "--format", "format"));
  support::Said said;
  said("htm", support::thrown_by([] { require_known("htm", {"html", "md"}, "--format", "format"); }));
}

// `compare --rule tost`, and what bits have in common with it, as a user calls them.

using testing::AllOf;

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
  void write(const std::string& name, double by, const std::function<void(OutCell&)>& change = {},
             const Primary& primary = {"accuracy_24", 0.03, 0.05, 0.4}) {
    OutCell reference{"1x24 global", out_config(1, 24), ending_at(kScatter), true};
    OutCell cell{"2x12 global", out_config(2, 12), ending_at(shifted(by)), false};
    if (change) change(cell);
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
  /// Exit code and what is printed, or the problems for which it is refused.
  static std::string end_of(const CompareCommandOptions& o) {
    try {
      const End end = call(o);
      return fmt::format("exit {}: {}", end.code, end.out);
    } catch (const ConfigError& error) {
      std::string all = "refused: ";
      for (const ConfigProblem& problem : error.problems()) all += problem.text() + "\n";
      return all;
    } catch (const TraceError& error) {
      return error.what();
    }
  }
  const TempFolder folder_;
};

TEST_F(CompareOutcome, FindsFoldersEquivalentAndAPlantedLossOfAccuracy) {
  support::Said said(folder_.path());
  write("a", 0);
  write("b", 0.002);
  write("c", -0.1);
  said("0.002 higher", end_of(options("a", "b")));
  CompareCommandOptions lower = options("a", "c");
  said("0.1 lower", end_of(lower));
  lower.expect = {"divergent"};
  said("as expected", end_of(lower));
}
TEST_F(CompareOutcome, ComparesOneCellWithAReferenceByName) {
  write("a", -0.1);
  CompareCommandOptions o = options("a:1x24 global", "a:2x12 global");
  o.outputs.json = "-";
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

TEST_F(CompareOutcome, RefusesAnotherQuestionUnlessAskedTo) {
  support::Said said(folder_.path());
  write("a", 0);
  const auto other = [](OutCell& cell) {
    energy(cell.config).data.stride = 4;
    cell.config.steps = 200;
    cell.config.eval_every = 50;
  };
  write("b", 0, other, {"accuracy_24", 0.05, 0.05, 0.4});
  said("another question", end_of(options("a", "b")));
  CompareCommandOptions across = options("a", "b");
  across.across = true;
  across.margin = 0.04;  // replaces both
  said("across", end_of(across));
}
TEST_F(CompareOutcome, CountsSamplesWhereTheBatchGrows) {
  OutCell small{"1x3", out_config(1, 3), ending_at(kScatter), true};
  small.config.steps = 800;
  small.config.eval_every = 200;
  OutCell big{"2x12", out_config(2, 12), ending_at(shifted(0)), false};
  write_out(folder_ / "a", {big}, small);
  support::Said said(folder_.path());
  said("as many samples", end_of(options("a:1x3", "a:2x12")));
  big.config.steps = 200;
  write_out(folder_ / "b", {big}, small);
  said("fewer samples", end_of(options("b:1x3", "b:2x12")));
}

TEST_F(CompareOutcome, SaysWhatCannotBeCompared) {
  support::Said said(folder_.path());
  write("a", 0);
  write("same", 0);
  said("no such cell", end_of(options("a:2x12 local", "same")));
  said("no such folder", end_of(options("none", "same")));
  said("the same runs", end_of(options("a", "a")));
  write("seeds", 0, [](OutCell& cell) {
    cell.seeds.pop_back();
    cell.seeds.back().seed = 17;
  });
  said("seeds without a partner", end_of(options("a", "seeds")));
  write("gone", 0);
  std::filesystem::remove_all(folder_ / "gone/runs/2x12-global-s4");
  said("runs that are gone", end_of(options("a", "gone")));
  write("nan", 0, [](OutCell& cell) { cell.seeds[3].accuracy.back() = std::nan(""); });
  said("a metric that is no number", end_of(options("a", "nan")));
  CompareCommandOptions o = options("a", "same");
  o.margin = 0.0;
  o.alpha = 0.5;
  said("margin and alpha", end_of(o));
  o = options("a", "same");
  o.metric = "cross_entropy_24";
  said("a metric without a margin", end_of(o));
  o.rule = "tots";
  said("a rule", end_of(o));
  o.rule = "bits";
  o.margin = 0.1;
  said("a margin of bits", end_of(o));
  o = options("a", "same");
  o.rule = "bits";
  said("an output folder is no run", end_of(o));
  said("single runs", end_of(options("a/runs/1x24-global-s0", "a/runs/2x12-global-s0")));
  // Without a matrix around them nothing declares a margin.
  std::filesystem::rename(folder_ / "a/results.json", folder_ / "a/gone.json");
  said("single runs without a matrix", end_of(options("a/runs/1x24-global-s0", "a/runs/2x12-global-s0")));
}
TEST_F(CompareOutcome, NamesCellsWithoutAPartner) {
  OutCell reference{"1x24 global", out_config(1, 24), ending_at(kScatter), true};
  const OutCell one{"2x12 global", out_config(2, 12), ending_at(shifted(0)), false};
  const OutCell two{"3x8 global", out_config(3, 8), ending_at(shifted(0)), false};
  const OutCell three{"4x6 global", out_config(4, 6), ending_at(shifted(0)), false};
  write_out(folder_ / "a", {one, two}, reference);
  write_out(folder_ / "b", {one, three}, reference);
  support::Said said(folder_.path());
  CompareCommandOptions o = options("a", "b");
  said("refused", end_of(o));
  o.across = true;
  said("across", end_of(o));
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
  support::Said said(folder_.path());
  said("refused", end_of(o));
  o.across = true;
  said("across", end_of(o));
  o.outputs.json = "-";
  EXPECT_EQ(nlohmann::json::parse(call(o).out).at("question_differences").at(0).at("what"), "data.seed");
}

TEST_F(CompareBits, RefusesTheTraceOfAnotherRun) {
  RunConfig b = out_config(3, 8);
  b.steps = 700;
  const CompareCommandOptions o = traced(out_config(3, 8), b);
  const std::string file = "/rank-0.trace";
  std::filesystem::copy_file(folder_ / ("b" + file), folder_ / ("a" + file),
                             std::filesystem::copy_options::overwrite_existing);
  support::Said said(folder_.path());
  said("refused", end_of(o));
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
  support::Said said(folder_.path());
  said("refused", end_of(o));
}

TEST_F(CompareBits, RefusesADamagedDescription) {
  const CompareCommandOptions o = traced(out_config(3, 8), out_config(3, 8));
  nlohmann::json run = nlohmann::json::parse(read_text(folder_ / "a/run.json"));
  run["config"]["steps"] = 9;
  write_text(folder_ / "a/run.json", run.dump());
  EXPECT_THAT(end_of(o), AllOf(HasSubstr("a/run.json is damaged: its checksum is "),
                               HasSubstr("run its matrix again to retrain this run")));
}

TEST_F(CompareBits, TakesAnotherLengthOrCacheForTheSameQuestion) {
  RunConfig b = out_config(3, 8);
  b.steps = 700;
  energy(b).negatives = Negatives::local;
  energy(b).data.cache = false;
  support::Said said(folder_.path());
  said("the same", end_of(traced(out_config(3, 8), b)));
}

TEST_F(CompareBits, HalfARunPassesOnlyIfNoMoreIsAskedFor) {
  CompareCommandOptions o = traced(out_config(3, 8), out_config(3, 8));
  support::FakeRun half;
  half.steps = support::steps_up_to(2);
  half.config_hash = config_hash(out_config(3, 8));
  support::write_fake_run(folder_ / "b", half);
  support::Said said(folder_.path());
  said("half", end_of(o));
  o.steps = 2;
  said("two steps", end_of(o));
  o.steps = 0;
  o.expect = {"identical,inconclusive"};
  said("expected", end_of(o));
  o.rule = "tost";
  o.steps = 2;
  said("steps of another rule", end_of(o));
  o = traced(out_config(3, 8), out_config(3, 8));
  o.repeats = {folder_ / "a", folder_ / "a", folder_ / "a"};
  said("too few repeats", end_of(o));
}

TEST_F(CompareBits, RefusesTwoModels) {
  CompareCommandOptions o;
  o.run_a = LOCKSTEP_SOURCE_DIR "/tests/conformance/verdicts/twice/a";
  o.run_b = LOCKSTEP_SOURCE_DIR "/tests/conformance/reports/pytorch-176076-last-rows-never-move/right";
  EXPECT_THAT(end_of(o), HasSubstr("these are not two runs of one model: of 3 and 3 parameters 0 agree in name and shape"));
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

TEST_F(CompareBeside, ForcedRunsOfTheMatrixDecideAndFindWhatFreeOnesCannotShow) {
  support::Said said(folder_.path());
  const CompareCommandOptions o = matrix(nullptr);
  said("with forced runs", end_of(o));
  CompareCommandOptions forced = options("a-forced", "b-forced");
  forced.rule = "bits";
  said("forced runs themselves", end_of(forced));
  std::filesystem::remove(folder_ / "b-forced/done");
  said("of which none has finished", end_of(o));
  said("forced runs without their twins", end_of(forced));
  std::filesystem::remove_all(folder_ / "b");
  said("a fault", end_of(matrix([](support::FakeStep& it) {
         if (it.step < 10) return;
         for (float& value : support::tensor_of(it.reduced_gradients, "head.weight")) value *= 1.01F;
       })));
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
  support::Said said(folder_.path());
  said("of another seed", end_of(o));
}

}  // namespace
}  // namespace lockstep
