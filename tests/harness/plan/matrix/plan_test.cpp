#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "harness/base/json.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan.h"
#include "harness/plan/matrix/plan_history.h"
#include "scenarios/energy/spec.h"
#include "tests/harness/plan/matrix/matrix_helpers.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Plan plan_of(const std::string& text, const Overrides& overrides = {}) {
  return make_plan(parse(text, overrides), "", {});
}

std::map<RunRole, int> counts(const Plan& plan) {
  std::map<RunRole, int> out;
  for (const PlannedRun& run : plan.runs) ++out[run.role];
  return out;
}

const std::string kOutcome =
    "name: x\nsteps: 100\nquestion: outcome\nseeds: 3..5\nreference: {layout: 1x24}\n"
    "axes: {layout: [8x3], lr_scale: [1, 0.125]}\npower_controls: [{lr_scale: 0.125}]\n";

TEST(Plan, HasEveryRunOfAnOutcomeOnce) {
  const Plan plan = plan_of(kOutcome);
  EXPECT_EQ(counts(plan), (std::map<RunRole, int>{{RunRole::reference, 3},
                                                  {RunRole::cell, 6},
                                                  {RunRole::certify, 2},
                                                  {RunRole::forced_reference, 1},
                                                  {RunRole::forced_cell, 2},
                                                  {RunRole::forced_twin, 3}}));
  std::set<std::string> ids, hashes;
  for (const PlannedRun& run : plan.runs) {
    EXPECT_TRUE(ids.insert(run.id).second) << run.id;
    EXPECT_TRUE(hashes.insert(run.hash).second) << run.id;
    EXPECT_EQ(run.hash, config_hash(run.config));
    EXPECT_TRUE(run.id.ends_with("-" + run.hash.substr(0, 8))) << run.id;
    EXPECT_GT(run.estimate_s, 0);
  }
}

const std::string kResumed =
    "name: x\nsteps: 100\nquestion: mechanism\nseeds: 3..4\nreference: {same_as: cell, layout: 1x24}\naxes: {layout: [6x4]}\n"
    "include:\n  - {layout: 3x8, resume_from: 6x4, resume_step: 10}\n";

TEST(Plan, GoesOnFromAnotherCellsRunOfTheSameSeed) {
  const Plan plan = plan_of(kResumed);
  const std::string cell = "3x8 resume_from=6x4 resume_step=10";
  for (const int64_t seed : {3, 4}) {
    const PlannedRun *source = find_run(plan, "6x4", RunRole::cell, seed), *run = find_run(plan, cell, RunRole::cell, seed);
    ASSERT_TRUE(source && run);
    EXPECT_EQ(run->config.resume_from, source->id);
    EXPECT_EQ(run->config.resume_step, 10);
    EXPECT_THAT(run->needs, ElementsAre(source->id));
    EXPECT_THAT(source->config.snapshot_steps, testing::Contains(10));
    const PlannedRun* reference = find_run(plan, "1x24", RunRole::reference, seed);
    ASSERT_TRUE(reference);
    EXPECT_EQ(reference->config.resume_from, "") << "it is the run that was never stopped";
  }
  const PlannedRun* prefix = find_run(plan, cell, RunRole::certify, 3);
  ASSERT_TRUE(prefix);
  EXPECT_EQ(prefix->config.resume_from, find_run(plan, "6x4", RunRole::cell, 3)->id);
  EXPECT_EQ(prefix->config.stop_after, 60);
  EXPECT_EQ(find_run(plan, cell, RunRole::forced_cell, 3)->config.resume_from, "");
  EXPECT_THROW(plan_of(kResumed, only("layout==3x8")), ConfigError);
}

TEST(Plan, PutsReferencesAndWhateverIsNeededFirst) {
  for (const std::string& matrix : {kOutcome, kResumed}) {
    const Plan plan = plan_of(matrix);
    std::set<std::string> seen;
    bool cells_began = false;
    for (const PlannedRun& run : plan.runs) {
      for (const std::string& need : run.needs) EXPECT_TRUE(seen.contains(need)) << run.id << " needs " << need;
      seen.insert(run.id);
      cells_began |= run.role == RunRole::cell;
      if (run.role == RunRole::reference) {
        EXPECT_FALSE(cells_began);
      }
    }
  }
}

TEST(Plan, KeepsSnapshotsOfTheReferencesFirstSeedAlone) {
  const Plan plan = plan_of(kOutcome);
  for (const PlannedRun& run : plan.runs) {
    if (run.role == RunRole::reference && run.config.seed == 3) {
      EXPECT_THAT(run.config.snapshot_steps, ElementsAre(0, 1, 2, 5, 10, 20, 50));
    } else {
      EXPECT_THAT(run.config.snapshot_steps, IsEmpty()) << run.id;
    }
  }
}

TEST(Plan, KeepsTheUsersOwnSnapshotsToo) {
  const Plan plan = plan_of(kOutcome, set({"snapshot_steps=[7, 20]"}));
  EXPECT_THAT(find_run(plan, "1x24", RunRole::reference, 3)->config.snapshot_steps,
              ElementsAre(0, 1, 2, 5, 7, 10, 20, 50));
  EXPECT_THAT(find_run(plan, "1x24", RunRole::reference, 4)->config.snapshot_steps, ElementsAre(7, 20));
}

TEST(Plan, CertifiesEachEmulatedCellByARealPrefixOfItsFirstSeed) {
  const Plan plan = plan_of(kOutcome);
  const PlannedRun* prefix = find_run(plan, "8x3", RunRole::certify, 3);
  const PlannedRun* whole = find_run(plan, "8x3", RunRole::cell, 3);
  ASSERT_NE(prefix, nullptr);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->config.backend, Backend::emulated);
  EXPECT_EQ(prefix->config.backend, Backend::gloo);
  EXPECT_EQ(prefix->config.stop_after, 50);
  EXPECT_TRUE(prefix->config.eval_every.is_never());
  // Nothing else may differ: schedules reach to the same end.
  RunConfig same = prefix->config;
  same.backend = Backend::emulated;
  same.stop_after = 0;
  same.eval_every = whole->config.eval_every;
  EXPECT_TRUE(same_config(same, whole->config));
}

TEST(Plan, EvaluatesWhereAMetricIsAskedForAlone) {
  const auto matrix = [](const std::string& more) {
    return parse_matrix("name: m\ndata: {source: synthetic}\nsteps: 50\nseeds: 0\nreference: {layout: 1x24}\naxes: {layout: [8x3]}\n" + more, "m.yaml", {});
  };
  EXPECT_TRUE(matrix("question: mechanism\n").cells.front().config.eval_every.is_never());
  EXPECT_TRUE(matrix("question: mechanism\neval_every: never\n").cells.front().config.eval_every.is_never());
  EXPECT_EQ(matrix("question: mechanism\neval_every: 10\n").cells.front().config.eval_every, 10);
  EXPECT_EQ(matrix("question: mechanism\ncheckpoint: {every: 5}\n").cells.front().config.eval_every, 25) << "best_model is chosen by one";
  EXPECT_EQ(parse_matrix(kOutcome, "m.yaml", {}).cells.front().config.eval_every, 25);
  const EvaluationPeriod never = EvaluationPeriod::never(), at_end = 0, tenth = 10;
  EXPECT_EQ(never.evaluations(50) + at_end.evaluations(50) + tenth.evaluations(50), 0 + 1 + 5);
  EXPECT_FALSE(never.due(50, 50));
  EXPECT_TRUE(at_end.due(50, 50));
  EXPECT_TRUE(tenth.due(20, 50) && !tenth.due(25, 50));
}

TEST(Plan, SaysWhereEvaluationsAndSavesDoNotMeet) {
  const auto text = [](const std::string& more) {
    const Matrix matrix = parse_matrix(
        "name: m\ndata: {source: synthetic}\nsteps: 100\nseeds: 0\nquestion: mechanism\nreference: {layout: 1x24}\naxes: {layout: [8x3]}\n" + more, "m.yaml", {});
    return plan_text(make_plan(matrix, "", {}), 2);
  };
  EXPECT_THAT(text("checkpoint: {every: 10}\neval_every: 25\n"),
              testing::HasSubstr("2 of 4 evaluations of a run are at a step that is saved (eval_every 25, checkpoint.every 10): best_model names the best of those alone"));
  EXPECT_THAT(text("checkpoint: {every: 30}\neval_every: 25\n"), testing::HasSubstr("none of 4 evaluations of a run is at a step that is saved"));
  EXPECT_THAT(text("checkpoint: {every: 5}\neval_every: 25\n"), testing::Not(testing::HasSubstr("best_model")));
  EXPECT_THAT(text("eval_every: 25\n"), testing::Not(testing::HasSubstr("best_model")));
}

TEST(Plan, CertifiesAShortRunWhole) {
  const Plan plan = plan_of(kOutcome, set({"steps=30"}));
  const PlannedRun* prefix = find_run(plan, "8x3", RunRole::certify, 3);
  EXPECT_EQ(prefix->config.stop_after, 0);
  EXPECT_EQ(steps_to_run(prefix->config), 30);
}

TEST(Plan, CertifiesNothingIfToldSoOrIfThereIsNothingTo) {
  EXPECT_FALSE(counts(plan_of(kOutcome, set({"certify_steps=0"}))).contains(RunRole::certify));
  EXPECT_FALSE(counts(plan_of(kOutcome, set({"ranks=emulated"}))).contains(RunRole::certify));
  EXPECT_FALSE(counts(plan_of(kOutcome, set({"ranks=real"}))).contains(RunRole::certify));
  EXPECT_FALSE(
      counts(plan_of(kOutcome, set({"layout=1x24", "reference.dropout=0"}))).contains(RunRole::certify));
}

TEST(Plan, SharesEmulatedRunsWhateverCarriesTheRealOnes) {
  const std::string text =
      "name: x\nsteps: 8\nquestion: mechanism\nseeds: 3\ncertify_steps: 5\nforced_steps: [0]\nreference: {layout: 1x24}\n"
      "axes: {layout: [8x3], backend: [gloo, gloo_cuda, nccl]}\n";
  const Plan plan = plan_of(text);
  EXPECT_EQ(counts(plan), (std::map<RunRole, int>{{RunRole::reference, 1},
                                                  {RunRole::cell, 1},
                                                  {RunRole::certify, 3},
                                                  {RunRole::certify_forced, 1},
                                                  {RunRole::forced_reference, 1},
                                                  {RunRole::forced_cell, 1},
                                                  {RunRole::forced_twin, 2}}));
  for (const PlannedRun& run : plan.runs) EXPECT_TRUE(run.config.backend == Backend::gloo || run.config.transport == Transport::gloo) << run.id;
  EXPECT_EQ(plan_of(text, set({"backend=gloo"})).runs[1].hash, plan.runs[1].hash);
  EXPECT_EQ(find_run(plan, "8x3 backend=gloo_cuda", RunRole::certify, 3)->config.transport, Transport::gloo_cuda);
}

TEST(Plan, HasThePrefixOfABackendWithoutAnOrderComputedAgain) {
  const Plan plan = plan_of("name: x\nsteps: 8\nseeds: 3\ncertify_steps: 5\nbackend: nccl\nreference: {layout: 1x24}\naxes: {layout: [8x3]}\n");
  const PlannedRun* prefix = find_run(plan, "8x3", RunRole::certify, 3);
  const PlannedRun* again = find_run(plan, "8x3", RunRole::certify_forced, 3);
  ASSERT_TRUE(prefix != nullptr && again != nullptr);
  EXPECT_EQ(prefix->config.transport, Transport::nccl);
  EXPECT_EQ(prefix->config.trace, TraceLevel::full) << "its sums are compared with its own parts";
  EXPECT_THAT(prefix->config.snapshot_steps, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(again->config.backend, Backend::emulated);
  EXPECT_EQ(again->config.trace, TraceLevel::full);
  EXPECT_EQ(again->config.forced.from, prefix->id);
  EXPECT_EQ(again->config.forced.steps, prefix->config.snapshot_steps);
  EXPECT_THAT(again->needs, ElementsAre(prefix->id));
}

TEST(Plan, HoldsExactSumsToTheirBitsWhateverCarriesThem) {
  const Plan plan = plan_of("name: x\nsteps: 8\nseeds: 3\ncertify_steps: 5\nbackend: nccl\narithmetic: exact\nreference: {layout: 1x24}\n"
                            "axes: {layout: [8x3]}\n");
  EXPECT_EQ(counts(plan).at(RunRole::certify), 1);
  EXPECT_FALSE(counts(plan).contains(RunRole::certify_forced));
}

TEST(Plan, GivesEveryRealRunItsTransport) {
  for (const PlannedRun& run : plan_of(kOutcome, set({"ranks=real", "backend=gloo_cuda"})).runs) {
    EXPECT_EQ(run.config.transport, run.config.layout.world_size > 1 ? Transport::gloo_cuda : Transport::gloo) << run.id;
  }
}

TEST(Plan, RunsEverythingForRealIfToldSo) {
  for (const PlannedRun& run : plan_of(kOutcome, set({"ranks=real"})).runs) {
    EXPECT_EQ(run.config.backend == Backend::gloo, run.config.layout.world_size > 1) << run.id;
  }
}

TEST(Plan, ForcesCellsAtTheReferencesSnapshots) {
  const Plan plan = plan_of(kOutcome);
  const PlannedRun* reference = find_run(plan, "1x24", RunRole::reference, 3);
  const PlannedRun* forced = find_run(plan, "8x3 lr_scale=0.125", RunRole::forced_cell, 3);
  ASSERT_NE(reference, nullptr);
  ASSERT_NE(forced, nullptr);
  EXPECT_EQ(forced->config.forced.from, reference->id);
  EXPECT_THAT(forced->config.forced.steps, ElementsAre(0, 1, 2, 5, 10, 20, 50));
  EXPECT_EQ(forced->config.layout, (Layout{8, 3}));
  EXPECT_EQ(forced->config.lr_scale, 0.125);
  EXPECT_THAT(forced->needs, ElementsAre(reference->id));
  const PlannedRun* of_reference = find_run(plan, "1x24", RunRole::forced_reference, 3);
  for (const PlannedRun* each : {forced, of_reference}) {
    RunConfig twin = each->config;
    twin.forced.twin = true;
    const auto found = std::ranges::find(plan.runs, config_hash(twin), &PlannedRun::hash);
    ASSERT_NE(found, plan.runs.end()) << each->id;
    EXPECT_EQ(found->role, RunRole::forced_twin);
    EXPECT_EQ(found->cell, each->cell);
    EXPECT_THAT(found->needs, ElementsAre(reference->id));
  }
}

TEST(Plan, ATwinChoosesForItsRunWhereALossTakesSomeCandidates) {
  const Plan plan = plan_of(kOutcome + "loss: hard\n");
  EXPECT_EQ(counts(plan), counts(plan_of(kOutcome))) << "no run more";
  for (const RunRole role : {RunRole::forced_reference, RunRole::forced_cell}) {
    const PlannedRun* forced = find_run(plan, role == RunRole::forced_cell ? "8x3 lr_scale=0.125" : "1x24", role, 3);
    ASSERT_NE(forced, nullptr);
    const auto twin = std::ranges::find(plan.runs, forced->config.forced.chosen_by, &PlannedRun::id);
    ASSERT_NE(twin, plan.runs.end());
    EXPECT_EQ(twin->hash, config_hash(twin_config(forced->config)));
    EXPECT_THAT(forced->needs, ElementsAre(forced->config.forced.from, twin->id));
  }
  for (const PlannedRun& run : plan_of(kOutcome).runs) EXPECT_EQ(run.config.forced.chosen_by, "") << run.id;
  for (const PlannedRun& run : plan_of(kOutcome + "loss: hard\n", set({"band.exact=1e-12"})).runs) {
    EXPECT_EQ(run.config.forced.chosen_by, "") << "no twin: " << run.id;
  }
}

TEST(Plan, ForcesNothingWithoutForcedSteps) {
  const Plan plan = plan_of(kOutcome, set({"forced_steps=[]"}));
  EXPECT_EQ(counts(plan),
            (std::map<RunRole, int>{{RunRole::reference, 3}, {RunRole::cell, 6}, {RunRole::certify, 2}}));
  for (const PlannedRun& run : plan.runs) EXPECT_THAT(run.config.snapshot_steps, IsEmpty());
}

TEST(Plan, ForcesNothingBetweenPairsOfOneLayout) {
  const Plan plan = plan_of(
      "name: x\nranks: real\nreference: {same_as: cell, ranks: emulated}\n"
      "axes: {layout: [3x8, 8x3]}\n");
  EXPECT_EQ(counts(plan), (std::map<RunRole, int>{{RunRole::reference, 2}, {RunRole::cell, 2}}));
}

TEST(Plan, ForcesPairsOfDifferentLayoutsOnceAReference) {
  const Plan plan = plan_of(
      "name: x\nranks: real\nreference: {same_as: cell, layout: 1x24}\n"
      "axes: {layout: [3x8, 8x3], optimizer: [sgd, adam]}\n");
  EXPECT_EQ(counts(plan), (std::map<RunRole, int>{{RunRole::reference, 2},
                                                  {RunRole::cell, 4},
                                                  {RunRole::forced_reference, 2},
                                                  {RunRole::forced_cell, 4},
                                                  {RunRole::forced_twin, 6}}));
}

TEST(Plan, ForcesNoBatchOfAnotherSize) {
  const Plan plan = plan_of(kHead + "axes: {layout: [5x5, 8x3]}\nallow_unequal_batch: true\n");
  EXPECT_EQ(find_run(plan, "5x5", RunRole::forced_cell, 0), nullptr);
  EXPECT_NE(find_run(plan, "8x3", RunRole::forced_cell, 0), nullptr);
}

TEST(Plan, PlantsFaultsInTheCellsRunsAlone) {
  for (const PlannedRun& run : plan_of(kOutcome, set({"mutant.name=grad_scale", "mutant.factor=8"})).runs) {
    const bool of_cell =
        run.role == RunRole::cell || run.role == RunRole::certify || run.role == RunRole::forced_cell ||
        (run.role == RunRole::forced_twin && run.cell != "1x24");
    EXPECT_EQ(run.config.mutant.name, of_cell ? "grad_scale" : "none") << run.id;
  }
}

TEST(Plan, NamesRunsForPeopleAndTheSameWayEachTime) {
  const Plan plan = plan_of(kOutcome);
  const Plan again = plan_of(kOutcome);
  ASSERT_EQ(plan.runs.size(), again.runs.size());
  for (std::size_t i = 0; i < plan.runs.size(); ++i) EXPECT_EQ(plan.runs[i].id, again.runs[i].id);
  EXPECT_THAT(find_run(plan, "8x3 lr_scale=0.125", RunRole::cell, 4)->id,
              testing::StartsWith("8x3-lr_scale-0.125-s4-"));
  EXPECT_THAT(find_run(plan, "8x3", RunRole::certify, 3)->id, testing::StartsWith("8x3-s3-certify-"));
  EXPECT_THAT(find_run(plan, "8x3", RunRole::forced_twin, 3)->id, testing::StartsWith("8x3-s3-twin-"));
}

TEST(Plan, KeepsIdsOfCellsThatASelectionLeaves) {
  const Plan all = plan_of(kOutcome);
  const Plan some = plan_of(kOutcome, only("lr_scale!=1"));
  std::set<std::string> ids;
  for (const PlannedRun& run : all.runs) ids.insert(run.id);
  for (const PlannedRun& run : some.runs) EXPECT_TRUE(ids.contains(run.id)) << run.id;
  EXPECT_LT(some.runs.size(), all.runs.size());
}

TEST(Plan, OfNoCellsIsEmpty) { EXPECT_THAT(plan_of(kOutcome, only("nothing_like_it")).runs, IsEmpty()); }

TEST(Plan, MakesFolderNamesOfAnyName) {
  Matrix matrix = parse(kHead + "layout: 8x3\n");
  matrix.cells[0].name = "../a b/c=\xc3\xa9" + std::string(300, 'x');
  for (const PlannedRun& run : make_plan(matrix, "", {}).runs) {
    EXPECT_EQ(run.id.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"),
              std::string::npos)
        << run.id;
    EXPECT_NE(run.id.front(), '.');
    EXPECT_LT(run.id.size(), 130u);
  }
}

TEST(FindRun, FindsReferencesByTheirOwnNameAndByTheCells) {
  const Plan plan = plan_of(kOutcome);
  EXPECT_EQ(find_run(plan, "8x3", RunRole::reference, 4), find_run(plan, "1x24", RunRole::reference, 4));
  EXPECT_EQ(find_run(plan, "8x3", RunRole::reference, 4)->config.seed, 4);
  EXPECT_EQ(find_run(plan, "8x3", RunRole::cell, 9), nullptr);
  EXPECT_EQ(find_run(plan, "1x24", RunRole::cell, 3), nullptr);
  EXPECT_NE(find_run(plan, "8x3", RunRole::forced_reference, 99), nullptr)
      << "the seed selects free runs alone";
}

TEST(PlanText, SaysWhatWouldRunAndForHowLong) {
  const std::string text = plan_text(plan_of(kOutcome), 2);
  EXPECT_THAT(text, HasSubstr("x · outcome: accuracy_24, margin ± 0.03, 3 paired seeds"));
  EXPECT_THAT(text, HasSubstr("8x3 lr_scale=0.125"));
  EXPECT_THAT(text, HasSubstr("8 emulated"));
  EXPECT_THAT(text, HasSubstr("8 real"));
  EXPECT_THAT(text, HasSubstr("17 runs: 17 to run, 0 reused; about "));
  EXPECT_THAT(text, HasSubstr("on 2 cores"));
  EXPECT_THAT(text, HasSubstr("has not run here"));
}

TEST(PlanText, SaysWhichReferencesHaveNoPowerControl) {
  EXPECT_THAT(plan_text(plan_of(kOutcome), 2), Not(HasSubstr("no power control")));
  const std::string text =
      "name: x\nsteps: 100\nquestion: outcome\nseeds: 3..5\nreference: {same_as: cell, layout: 1x24, lr_scale: 1}\n"
      "axes: {layout: [8x3], negatives: [global, local, layer]}\ninclude: [{lr_scale: 0.125}]\n"
      "power_controls: [{lr_scale: 0.125}]\n";
  EXPECT_THAT(plan_text(plan_of(text), 2),
              HasSubstr("there is no power control for 1x24 local and 1x24 layer: nothing will show that a "
                        "difference would be noticed in comparisons with them; "
                        "add a cell under power_controls\n"));
  const nlohmann::json json = nlohmann::json::parse(plan_json(plan_of(text), 2));
  EXPECT_EQ(json["without_power_control"], nlohmann::json({"1x24 local", "1x24 layer"}));
}

TEST(PlanJson, HoldsEveryRunWithItsConfig) {
  const Plan plan = plan_of(kOutcome);
  const nlohmann::json json = nlohmann::json::parse(plan_json(plan, 2));
  ASSERT_EQ(json["runs"].size(), plan.runs.size());
  EXPECT_EQ(json["name"], "x");
  EXPECT_EQ(json["jobs"], 2);
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    EXPECT_EQ(json["runs"][i]["id"], plan.runs[i].id);
    EXPECT_EQ(json["runs"][i]["config"].dump(), canonical_json(plan.runs[i].config));
  }
}

TEST(Estimate, IsNoLessThanTheLongestChainAndFallsWithCores) {
  const Plan plan = plan_of(kOutcome);
  const double one = estimate_total_s(plan, 1), two = estimate_total_s(plan, 2),
               many = estimate_total_s(plan, 1000);
  EXPECT_GT(one, two);
  EXPECT_GE(two, many);
  double longest = 0;
  for (const PlannedRun& run : plan.runs) longest = std::max(longest, run.estimate_s);
  EXPECT_GE(many, longest);
}

namespace fs = std::filesystem;

const BuildIdentity kNow{"b1", "2.13", "avx2", "d1"};

class History : public testing::Test {
 protected:
  History() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    out_ = (fs::temp_directory_path() / ("lockstep_plan_" + std::to_string(getpid()) + "_" + test->name()))
               .string();
    fs::remove_all(out_);
    matrix_ = parse(kHead + "axes: {layout: [8x3, 3x8]}\nsteps: 100\n");
  }
  ~History() override { fs::remove_all(out_); }

  Plan plan(const BuildIdentity& identity = kNow) const { return make_plan(matrix_, out_, identity); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
  }
  void finish(const PlannedRun& run, double seconds = 2, const BuildIdentity& identity = kNow) const {
    const std::string dir = out_ + "/runs/" + run.id;
    nlohmann::json described{{"config", nlohmann::json::parse(canonical_json(run.config))}};
    seal(described);
    write(dir + "/run.json", described.dump());
    nlohmann::json done{{"config_hash", run.hash},
                        {"build", identity.build},
                        {"libtorch", identity.libtorch},
                        {"isa", identity.isa},
                        {"data", identity.data},
                        {"seconds", seconds},
                        {"files", nlohmann::json::parse(evidence_json(dir))}};
    seal(done);
    write(dir + "/done", done.dump());
  }
  void finish_all() const {
    for (const PlannedRun& run : plan().runs) finish(run);
  }

  std::string out_;
  Matrix matrix_;
};

TEST_F(History, ReusesNothingInAnEmptyFolder) {
  for (const PlannedRun& run : plan().runs) {
    EXPECT_FALSE(run.reused);
    EXPECT_EQ(run.why, "has not run here");
  }
}

TEST_F(History, ReusesWhatFinishedWithTheSameEverything) {
  finish_all();
  const Plan again = plan();
  for (const PlannedRun& run : again.runs) {
    EXPECT_TRUE(run.reused) << run.id << ": " << run.why;
    EXPECT_EQ(run.estimate_s, 2);
  }
  EXPECT_EQ(estimate_total_s(again, 2), 0);
  EXPECT_THAT(plan_text(again, 2), HasSubstr("0 to run, " + std::to_string(again.runs.size()) + " reused"));
}

TEST_F(History, SaysWhatDiffers) {
  finish_all();
  const auto why = [this](const BuildIdentity& identity) {
    const Plan again = plan(identity);
    EXPECT_FALSE(again.runs[0].reused);
    return again.runs[0].why;
  };
  EXPECT_EQ(why({"b2", "2.13", "avx2", "d1"}), "the build changed: b1 then, b2 now");
  EXPECT_EQ(why({"b1", "2.14", "avx2", "d1"}), "LibTorch changed: 2.13 then, 2.14 now");
  EXPECT_EQ(why({"b1", "2.13", "avx512", "d1"}), "the instruction set changed: avx2 then, avx512 now");
  EXPECT_EQ(why({"b1", "2.13", "avx2", "d2"}), "the data changed: d1 then, d2 now");
}

TEST_F(History, DoesNotReuseWhatIsUnfinishedOrMalformedOrOfAnotherConfig) {
  const Plan first = plan();
  fs::create_directories(out_ + "/runs/" + first.runs[0].id);
  EXPECT_EQ(plan().runs[0].why, "was started but not finished");
  const std::string done = out_ + "/runs/" + first.runs[0].id + "/done";
  for (const std::string text : {"", "{", "[]", "{}", R"({"config_hash": 3})"}) {
    write(done, text);
    EXPECT_FALSE(plan().runs[0].reused);
    EXPECT_THAT(plan().runs[0].why,
                testing::AnyOf(HasSubstr("its done file is damaged: not JSON, or cut short"),
                               HasSubstr("its done file is not a JSON object"),
                               HasSubstr("its done file has no checksum")))
        << text;
  }
  PlannedRun other = first.runs[0];
  other.hash = "0123456789abcdef";
  finish(other);
  EXPECT_THAT(plan().runs[0].why, HasSubstr("its config was different"));
}

TEST_F(History, DoesNotReuseWhatAnEarlierVersionLeft) {
  const Plan first = plan();
  finish(first.runs[0]);
  const std::string path = out_ + "/runs/" + first.runs[0].id + "/done";
  nlohmann::json done = nlohmann::json::parse(std::ifstream(path));
  done.erase("checksum");
  write(path, done.dump());
  EXPECT_EQ(plan().runs[0].why,
            "its done file has no checksum: an earlier lockstep or another program wrote it");
  EXPECT_FALSE(plan().runs[0].damaged) << "an old file is no damage";
  done["files"] = {{"run.json", 2}};  // sizes alone
  seal(done);
  write(path, done.dump());
  EXPECT_EQ(plan().runs[0].why, "its done file has no checksum of run.json: an earlier version wrote it");
  done.erase("files");
  seal(done);
  write(path, done.dump());
  EXPECT_FALSE(plan().runs[0].reused);
}

// As the launcher leaves it: ranks' files, and their checksums in `done`.
TEST_F(History, DoesNotReuseWhatLostATraceOrAResult) {
  const std::string dir = out_ + "/runs/" + plan().runs[0].id;
  const auto finish_whole = [&] {
    write(dir + "/rank-0.trace", "0123456789");
    write(dir + "/rank-0.result.json", "{}");
    finish(plan().runs[0]);
  };
  finish_whole();
  EXPECT_TRUE(plan().runs[0].reused) << plan().runs[0].why;
  fs::remove(dir + "/rank-0.trace");
  EXPECT_FALSE(plan().runs[0].reused);
  EXPECT_EQ(plan().runs[0].why, "its rank-0.trace is missing");
  EXPECT_TRUE(plan().runs[0].damaged);
  finish_whole();
  write(dir + "/rank-1.trace", "of whom?");
  EXPECT_EQ(plan().runs[0].why, "its rank-1.trace did not exist when it finished");
  fs::remove(dir + "/rank-1.trace");
  finish_whole();
  write(dir + "/rank-0.trace", "01234");
  EXPECT_EQ(plan().runs[0].why, "its rank-0.trace has 5 bytes and had 10");
  finish_whole();
  fs::remove(dir + "/rank-0.result.json");
  EXPECT_EQ(plan().runs[0].why, "its rank-0.result.json is missing");
  finish_whole();
  write(dir + "/rank-0.log", "said later");
  EXPECT_TRUE(plan().runs[0].reused) << "logs are no evidence";
}

// Bytes that change and leave the size, also of files that no judge would have read.
TEST_F(History, DoesNotReuseWhatChangedInAnyByte) {
  const PlannedRun run = plan().runs[0];
  const std::string dir = out_ + "/runs/" + run.id;
  const std::string trace(200000, 't');
  write(dir + "/rank-0.trace", trace);
  write(dir + "/rank-3.trace", trace);
  write(dir + "/rank-0.result.json", "{}");
  finish(run);
  ASSERT_TRUE(plan().runs[0].reused) << plan().runs[0].why;
  for (const std::size_t at : {0UL, 65535UL, 65536UL, 199999UL}) {
    std::string damaged = trace;
    damaged[at] ^= 1;
    write(dir + "/rank-3.trace", damaged);
    const Plan again = plan();
    EXPECT_FALSE(again.runs[0].reused) << at;
    EXPECT_TRUE(again.runs[0].damaged) << at;
    const std::size_t block = at / 65536 * 65536;
    EXPECT_THAT(
        again.runs[0].why,
        HasSubstr("its rank-3.trace is damaged between bytes " + std::to_string(block) + " and " +
                  std::to_string(std::min<std::size_t>(block + 65536, trace.size())) + ": their XXH3 is "));
  }
  write(dir + "/rank-3.trace", std::string(trace.size(), '\0'));
  EXPECT_FALSE(plan().runs[0].reused) << "zeroed";
  write(dir + "/rank-3.trace", trace);
  EXPECT_TRUE(plan().runs[0].reused) << "the same bytes, whenever they were written";
  write(dir + "/run.json", std::string(fs::file_size(dir + "/run.json"), ' '));
  EXPECT_THAT(plan().runs[0].why, HasSubstr("its run.json is damaged"));
}

TEST_F(History, SaysWhichKeyOfTheConfigChanged) {
  const Plan before = plan();
  for (const PlannedRun& run : before.runs) finish(run);
  EXPECT_TRUE(plan().runs[0].reused);
  matrix_ = parse(kHead + "axes: {layout: [8x3, 3x8]}\nsteps: 101\n");
  const Plan longer = plan();
  EXPECT_EQ(find_run(longer, "8x3", RunRole::cell, 0)->why,
            "ran here with a different config: steps was 100, is 101");
  for (const PlannedRun& run : longer.runs) {
    EXPECT_EQ(run.why, "ran here with a different config: steps was 100, is 101") << run.id;
  }
  matrix_ = parse(kHead + "axes: {layout: [8x3, 3x8]}\nsteps: 101\nlr: 0.5\nclip_norm: 3\ndropout: 0.5\n");
  EXPECT_THAT(plan().runs[0].why, testing::EndsWith("; 1 more keys"));
  matrix_.seeds = {7};
  EXPECT_EQ(plan().runs[0].why, "has not run here") << "of another seed there was nothing";
}

TEST_F(History, NeverReusesWhatMeasuresTime) {
  std::vector<PlannedRun> runs = plan().runs;
  finish(runs[0]);
  runs[0].exclusive = true;
  apply_history(runs, out_, kNow);
  EXPECT_FALSE(runs[0].reused);
  EXPECT_EQ(runs[0].why, "it measures time, and timings are never reused");
  EXPECT_EQ(runs[0].estimate_s, 2) << "how long it took is known all the same";
}

TEST_F(History, RunsAgainWhatReadsARunThatRunsAgain) {
  finish_all();
  const Plan first = plan();
  const PlannedRun* reference = find_run(first, "1x24", RunRole::reference, 0);
  fs::remove(out_ + "/runs/" + reference->id + "/done");
  for (const PlannedRun& run : plan().runs) {
    const bool touched = run.id == reference->id || !run.needs.empty();
    EXPECT_EQ(run.reused, !touched) << run.id;
    if (!run.needs.empty()) {
      EXPECT_EQ(run.why, "it reads " + reference->id + ", which runs again");
    }
  }
}

TEST_F(History, RunsAgainWhenTheConfigChanges) {
  finish_all();
  matrix_ = parse(kHead + "axes: {layout: [8x3, 3x8]}\nsteps: 101\n");
  for (const PlannedRun& run : plan().runs) EXPECT_FALSE(run.reused) << run.id;
}

TEST_F(History, LearnsDurationsFromRunsOfTheSameKind) {
  matrix_.seeds = {0, 1, 2};
  const Plan first = plan();
  finish(*find_run(first, "8x3", RunRole::cell, 0), 30);
  const Plan again = plan();
  EXPECT_DOUBLE_EQ(find_run(again, "8x3", RunRole::cell, 1)->estimate_s, 30);
  EXPECT_EQ(find_run(again, "3x8", RunRole::cell, 1)->estimate_s,
            find_run(first, "3x8", RunRole::cell, 1)->estimate_s);
  EXPECT_NE(find_run(first, "8x3", RunRole::cell, 1)->estimate_s, 30);
}

std::string refusal(const Matrix& matrix, const std::string& out) {
  try {
    check_out_dir(matrix, out);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_F(History, RefusesAFolderOfAnotherMatrix) {
  EXPECT_EQ(refusal(matrix_, out_), "") << "not there yet";
  fs::create_directories(out_);
  EXPECT_EQ(refusal(matrix_, out_), "") << "empty";
  write(out_ + "/matrix.json", matrix_stamp(matrix_));
  EXPECT_EQ(refusal(matrix_, out_), "") << "its own";
  Matrix other = matrix_;
  other.name = "other";
  EXPECT_EQ(refusal(other, out_),
            out_ + ": contains the results of the matrix tiny, but this config is other; give another --out");
  write(out_ + "/matrix.json", "{");
  EXPECT_THAT(refusal(matrix_, out_), HasSubstr("matrix.json: is malformed"));
  EXPECT_THAT(refusal(matrix_, out_ + "/matrix.json"), HasSubstr("is a file, not an output folder"));
}

TEST_F(History, PutsResultsUnderTheMatrixsName) { EXPECT_EQ(default_out_dir(matrix_), "out/tiny"); }

}  // namespace
}  // namespace lockstep
