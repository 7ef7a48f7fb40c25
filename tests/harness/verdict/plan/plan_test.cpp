#include "harness/verdict/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/verdict/config/canonical.h"
#include "scenarios/energy/config.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"

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

}  // namespace
}  // namespace lockstep
