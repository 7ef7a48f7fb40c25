#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "harness/base/json.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/checks.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan.h"
#include "harness/plan/matrix/plan_history.h"
#include "harness/plan/matrix/read_matrix.h"
#include "scenarios/energy/spec.h"
#include "tests/harness/plan/matrix/matrix_helpers.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

/// Each cell with what it is, what parts it from its reference, and that one, if the cell before has another.
std::string text_of(const Matrix& matrix) {
  std::string text, last;
  for (const Cell& cell : matrix.cells) {
    std::vector<std::string> is;
    for (const auto& [key, value] : cell.settings) is.push_back(key + ": " + value);
    for (const auto& [flag, word] : {std::pair{cell.paired, "paired"},
                                     {cell.power_control, "power control"},
                                     {cell.noise, "noise"},
                                     {cell.anchor, "anchor"}})
      if (flag) is.emplace_back(word);
    for (const VerdictKind kind : cell.expected) is.push_back(fmt::format("expects {}", name_of(kind)));
    if (!cell.seeds.empty()) is.push_back(fmt::format("seeds {}", fmt::join(cell.seeds, " ")));
    const std::string reference = " against " + cell.reference_name + ":" + differences(RunConfig{}, cell.reference);
    text += fmt::format("{}{} ({}){}{}", text.empty() ? "" : " | ", cell.name, fmt::join(is, ", "),
                        differences(cell.reference, cell.config), reference == last ? "" : reference);
    last = reference;
  }
  return text;
}

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

TEST(Cells, AreThoseThatTheirMatrixSays) {
  support::Said said;
  const auto cells = [&](const char* what, const std::string& text) {
    const std::vector<std::string> problems = problems_of(text);
    said(what, problems.empty() ? text_of(parse(text)) : fmt::format("{}", fmt::join(problems, " | ")));
  };
  cells("the product of axes in the order written", kHead + "axes: {layout: [8x3, 3x8], negatives: [local, global]}\n");
  cells("without axes one", kHead + "layout: 8x3\n");
  cells("defaults are left out of names", kHead + "axes: {lr_scale: [1, 0.125], layout: [8x3], rank_seed: [keyed, same]}\n");
  cells("a default that is not the base value is named",
        kHead + "layout: 8x3\nlr_scale: 0.5\naxes: {lr_scale: [1, 0.5]}\n");
  cells("negatives that are not the default are named", kHead + "axes: {layout: [8x3]}\nnegatives: local\n");
  // Base lr 0.01; one included cell sets the struct's default 0.001 and is named; the others are not.
  cells("names are unique", kHead + "layout: 8x3\nlr: 0.01\ninclude: [{lr: 0.001}, {layout: 8x3}, {lr: 0.02}]\n");
  cells("excluded by value or list",
        kHead + "layout: 8x3\naxes: {negatives: [local, global], lr_rule: [none, linear, sqrt]}\nexclude: [{negatives: local, lr_rule: [linear, sqrt]}]\n");
  cells("included ones take the first value of axes", kHead + "axes: {layout: [8x3, 3x8], negatives: [local]}\ninclude: [{lr_scale: 0.5}]\n");
  cells("a reference of their own",
        "name: m\nsteps: 100\nallow_unequal_batch: true\nreference: {same_as: cell, layout: 1x24, lr_rule: none}\nquestion: mechanism\n"
        "axes: {layout: [8x3]}\ninclude: [{lr_rule: sqrt, reference: {layout: 1x3, steps: 800}}, {reference: {layout: 1x3, steps: 800}}]\n");
  cells("a reference of base values and its own keys",
        "name: x\nsteps: 30\ndropout: 0\nreference: {layout: 1x24, negatives: global}\naxes: {layout: [8x3], lr_scale: [0.5], negatives: [local]}\n");
  const std::string same = "name: x\nreference: {same_as: cell, ";
  cells("the same as the cell", same + "ranks: emulated}\nranks: real\naxes: {layout: [3x8, 8x3], lr_scale: [1, 0.5]}\n");
  cells("a shared reference", same + "layout: 1x24}\naxes: {layout: [3x8, 8x3], optimizer: [sgd, adam]}\n");
  cells("one is its own reference in an outcome",
        same + "layout: 1x24, lr_scale: 1}\naxes: {layout: [1x24, 8x3]}\ninclude: [{layout: 8x3, lr_scale: 0.125}]\n"
               "seeds: 0..3\nquestion: outcome\npower_controls: [{lr_scale: 0.125}]\n");
  const std::string fault = "name: x\nmutant: {name: grad_scale, factor: 8}\nlayout: 8x3\n";
  cells("a planted fault", fault + "reference: {layout: 1x24}\n");
  cells("a planted fault of pairs", fault + "reference: {same_as: cell, layout: 1x24}\n");
  cells("a planted fault in both", fault + "reference: {layout: 1x24, mutant: {name: grad_scale, factor: 8}}\n");
  cells("one process is never real", "name: x\nranks: real\nreference: {layout: 1x24}\naxes: {lr: [2]}\nlayout: 1x24\n");
  cells("the first expectation that matches",
        kHead + "axes: {layout: [8x3, 3x8, 2x12]}\nexpect:\n  - {when: {layout: 8x3}, verdict: divergent}\n"
                "  - {when: {layout: [8x3, 3x8]}, verdict: [identical, within_envelope]}\n");
  cells("power controls", kHead + "seeds: 0..3\nlayout: 8x3\naxes: {lr_scale: [1, 0.125]}\npower_controls: [{lr_scale: 0.125}]\n");
  const std::string control = "name: m\nreference: {layout: 1x24}\naxes: {layout: [8x3]}\nseeds: 0..3\npower_controls: [{lr_scale: 0.125}]\n";
  const std::string noise = control + "include: [{lr_scale: 0.125}]\nnoise: ";
  cells("noise", noise + "[row_order, epsilon]\n");
  cells("noise in nothing", noise + "[none]\n");
  const std::string of_some = control + "include: [{lr_scale: 8, seeds: [0, 1, 2]}, {lr_scale: 0.125}]\n";
  cells("noise of some cells", of_some + "noise: [epsilon]\nnoise_of: [{lr_scale: 8}]\n");
  cells("noise of no cell", of_some + "noise: [epsilon]\nnoise_of: [{lr_scale: 3}]\n");
  cells("cells of no noise", of_some + "noise_of: [{lr_scale: 8}]\n");
  // The cell's own runs are the pair's references: each is planned once.
  const Plan plan = make_plan(parse(of_some + "noise: [epsilon]\nnoise_of: [{lr_scale: 8}]\n"), "", {});
  for (const Perturbation perturb : {Perturbation::none, Perturbation::epsilon}) {
    EXPECT_EQ(std::ranges::count_if(plan.runs,
                                    [&](const PlannedRun& run) {
                                      return (run.role == RunRole::cell || run.role == RunRole::reference) &&
                                             run.config.lr_scale == 8 && run.config.perturb == perturb;
                                    }),
              3);
  }
}

TEST(Cells, WithOneNameAndTwoConfigsAreToldApartByTheirHash) {
  // A file's name that reads like another setting.
  const Matrix matrix = parse(kHead +
                              "layout: 8x3\ndata: {source: ts_files, train_file: a, test_file: b}\ninclude:\n"
                              "  - {data.train_file: c, data.stride: 3}\n"
                              "  - {data.train_file: c data.stride=3}\n");
  const std::vector<std::string> names = names_of(matrix);
  EXPECT_THAT(names, ElementsAre("8x3 data.train_file=c data.stride=3",
                                 names[0] + " #" + config_hash(matrix.cells[1].config).substr(0, 8)));
}
TEST(Cells, WhoseReferenceHasNoControlAreNamed) {
  const std::string head =
      "name: m\nreference: {same_as: cell, layout: 1x24, lr_scale: 1}\nseeds: 0..3\nquestion: outcome\n"
      "axes: {layout: [8x3], negatives: [global, layer]}\npower_controls: [{lr_scale: 0.125}]\n";
  const std::string global = "{negatives: global, lr_scale: 0.125}", layer = "{negatives: layer, lr_scale: 0.125}";
  EXPECT_THAT(references_without_control(parse(head + "include: [" + global + "]\n")), ElementsAre("1x24 layer"));
  EXPECT_THAT(references_without_control(parse(head + "include: [" + global + ", " + layer + "]\n")), IsEmpty());
  // What decides nothing of learning makes no other question.
  const std::string both = head + "include: [" + global + ", " + layer;
  EXPECT_THAT(references_without_control(parse(both + ", {bucket_cap_bytes: 4096}]\n")), IsEmpty());
}

TEST(Matrix, AsksForTheOutcomeIfThereAreSeveralSeeds) {
  EXPECT_EQ(parse(kHead + "layout: 8x3\n").question, "mechanism");
  EXPECT_EQ(
      parse(kHead + "seeds: 0..3\nlayout: 8x3\naxes: {lr_scale: [0.1]}\npower_controls: [{lr_scale: 0.1}]\n")
          .question,
      "outcome");
  EXPECT_EQ(parse(kHead + "layout: 8x3\nseeds: 0..3\nquestion: mechanism\n").question, "mechanism");
}

TEST(Matrix, TakesItsQuestionFromTheFirstLine) {
  const Matrix matrix = parse(kHead + "layout: 8x3\n");
  EXPECT_EQ(matrix.question_text, "Is it so?");
  EXPECT_EQ(matrix.file, "m.yaml");
  EXPECT_EQ(parse("name: x\nlayout: 8x3\nreference: {layout: 1x24}\n").question_text, "");
}

TEST(Matrix, ClipsForcedStepsToTheRunsLength) {
  EXPECT_THAT(parse(kHead + "layout: 8x3\n").forced_steps,
              ElementsAre(0, 1, 2, 5, 10, 20, 50, 100, 200, 500));
  EXPECT_THAT(parse(kHead + "layout: 8x3\nsteps: 20\n").forced_steps, ElementsAre(0, 1, 2, 5, 10));
  EXPECT_THAT(parse(kHead + "layout: 8x3\nforced_steps: [19, 3, 20]\n", set({"steps=20"})).forced_steps,
              ElementsAre(3, 19))
      << "who shortens a run on the command line need not name its steps anew";
  EXPECT_THAT(parse(kHead + "layout: 8x3\nforced_steps: []\n").forced_steps, IsEmpty());
}

TEST(Matrix, ReadsItsScalars) {
  const Matrix matrix = parse(kHead +
                              "layout: 8x3\nquestion: mechanism\nranks: auto\ncertify_steps: 7\n"
                              "primary: {metric: accuracy_256, margin: 0.5, alpha: 0.1}\n"
                              "band: {floor: 2}\n");
  EXPECT_EQ(matrix.name, "tiny");
  EXPECT_EQ(matrix.ranks, RanksPolicy::automatic);
  EXPECT_EQ(matrix.certify_steps, 7);
  EXPECT_EQ(matrix.primary.metric, "accuracy_256");
  EXPECT_EQ(matrix.primary.margin, 0.5);
  EXPECT_EQ(matrix.primary.alpha, 0.1);
  EXPECT_EQ(matrix.band.floor, 2);
}

TEST(Matrix, TakesRelativeDataFilesFromTheConfigsFolder) {
  const std::string text =
      "name: x\nlayout: 8x3\nreference: {layout: 1x24}\n"
      "data: {source: ts_files, train_file: ../a.ts, test_file: /abs/b.ts}\n";
  const Matrix matrix = parse_matrix(text, "dir/sub/m.yaml", {});
  EXPECT_EQ(matrix.cells[0].config.data.train_file, "dir/a.ts");
  EXPECT_EQ(matrix.cells[0].config.data.test_file, "/abs/b.ts");
  EXPECT_EQ(matrix.cells[0].reference.data.train_file, "dir/a.ts");
  const Matrix overridden = parse_matrix(text, "dir/sub/m.yaml", set({"data.train_file=here.ts"}));
  EXPECT_EQ(overridden.cells[0].config.data.train_file, "here.ts");
}

// `seeds: auto`, as a config asks for it.

using testing::Contains;

const std::string kAuto =
    "name: x\nsteps: 100\nquestion: outcome\nseeds: auto\nreference: {layout: 1x24}\n"
    "axes: {layout: [8x3], lr_scale: [1, 0.125]}\npower_controls: [{lr_scale: 0.125}]\n";

TEST(SeedsAuto, BeginsWithTheFirstLook) {
  const Matrix matrix = parse(kAuto + "seeds_auto: {first: 4, step: 3, most: 12}\n");
  EXPECT_TRUE(matrix.seeds_auto.on);
  EXPECT_THAT(matrix.seeds, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(analysis_sizes(matrix.seeds_auto), ElementsAre(4, 7, 10, 12));
}

TEST(SeedsAuto, IsAnOutcomesUnlessSaidOtherwise) {
  EXPECT_EQ(
      parse("name: x\nseeds: auto\nreference: {layout: 1x24}\naxes: {layout: [8x3], lr_scale: [1, 0.125]}\n"
            "power_controls: [{lr_scale: 0.125}]\n")
          .question,
      "outcome");
}

TEST(SeedsAuto, GivesWayToSeedsOfTheCommandLine) {
  Overrides overrides;
  overrides.seeds = "3..5";
  const Matrix matrix = parse(kAuto, overrides);
  EXPECT_FALSE(matrix.seeds_auto.on);
  EXPECT_THAT(matrix.seeds, ElementsAre(3, 4, 5));
}

TEST(SeedsAuto, RefusesLooksThatCannotBe) {
  EXPECT_THAT(problems_of(kAuto + "seeds_auto: {first: 50, most: 40}\n"),
              Contains(HasSubstr("m.yaml:8:14: the first interim analysis has 50 seeds, more than the last with 40")));
  EXPECT_THAT(problems_of(kAuto + "seeds_auto: {step: 1, most: 500}\n"),
              Contains(HasSubstr("more than 100 interim analyses")));
}

TEST(SeedsAuto, AReferenceRunsWhatItsNeediestCellRuns) {
  Matrix matrix = parse(kAuto + "seeds_auto: {first: 2, step: 2, most: 6}\n");
  ASSERT_EQ(matrix.cells.size(), 2u);
  set_analysis(matrix, {2, 6});
  EXPECT_THAT(matrix.seeds, ElementsAre(0, 1, 2, 3, 4, 5));
  const Plan plan = make_plan(matrix, "", {});
  std::map<std::string, std::set<int64_t>> seeds;
  for (const PlannedRun& run : plan.runs) {
    if (run.role == RunRole::cell || run.role == RunRole::reference) seeds[run.cell].insert(run.config.seed);
  }
  EXPECT_EQ(seeds[matrix.cells[0].name].size(), 2u);
  EXPECT_EQ(seeds[matrix.cells[1].name].size(), 6u);
  EXPECT_EQ(seeds[matrix.cells[0].reference_name].size(), 6u);
}

TEST(SeedsAuto, EarlierLooksRunsAreThoseOfLaterOnes) {
  Matrix matrix = parse(kAuto);
  const Plan first = make_plan(matrix, "", {});
  set_analysis(matrix, {10, 10});
  const Plan second = make_plan(matrix, "", {});
  std::set<std::string> hashes;
  for (const PlannedRun& run : second.runs) hashes.insert(run.hash);
  for (const PlannedRun& run : first.runs) EXPECT_TRUE(hashes.contains(run.hash)) << run.id;
}

TEST(SeedsAuto, ThePlanTellsTheFirstLookAndTheMost) {
  const std::string text = plan_text(make_plan(parse(kAuto), "", {}), 2);
  EXPECT_THAT(text, HasSubstr("paired, 5 to 40 seeds, 5 at a time, until decided"));
  EXPECT_THAT(text,
              HasSubstr("first interim analysis: 5 seeds; with all 40, if no cell is decided before: 105 more runs"));
  EXPECT_THAT(plan_json(make_plan(parse(kAuto), "", {}), 2), HasSubstr("\"seeds_auto\""));
}

Plan plan_of_layouts(const std::string& reference, const std::string& cell) {
  const std::string text = "name: m\ntrainer: energy\ndata: {source: synthetic, series: 900}\nsteps: 3\nseeds: 0\nquestion: mechanism\n"
                           "ranks: emulated\nforced_steps: [1]\ncertify_steps: 0\nreference: {layout: " +
                           reference + "}\naxes:\n  layout: [" + cell + "]\n";
  return make_plan(parse_matrix(text, "m.yaml", {}), "", {});
}

double most_of(const Plan& plan) {
  double most = 0;
  for (const PlannedRun& run : plan.runs) most = std::max(most, modelled_memory_bytes(run.config));
  return most;
}

TEST(PlannedMemory, OfManyRowsIsThatOfTheirScoresAndAPart) {
  const double few = most_of(plan_of_layouts("1x24", "8x3")), many = most_of(plan_of_layouts("1x1536", "512x3"));
  EXPECT_GT(few, 1e8);
  EXPECT_LT(few, 3e8);
  EXPECT_GT(many, few);
  EXPECT_LT(many, 8e9) << "not that of all pairs' activations, 22 GB in float64 with their gradients";
}

TEST(PlannedMemory, ThatTheMachineLacksIsRefusedByName) {
  const Plan plan = plan_of_layouts("1x1536", "512x3");
  EXPECT_THAT(lacking_memory(plan, 64e9), IsEmpty());
  EXPECT_THAT(lacking_memory(plan, 0), IsEmpty()) << "a machine of which nothing is known";
  const double most = most_of(plan);
  const std::vector<std::string> lacking = lacking_memory(plan, 0.99 * most);
  ASSERT_EQ(lacking.size(), 1U);
  EXPECT_THAT(lacking.front(), testing::AllOf(HasSubstr("needs about"), HasSubstr("this machine has")));
}

TEST(PlannedMemory, StandsInThePlan) {
  const Plan plan = plan_of_layouts("1x24", "8x3");
  EXPECT_THAT(plan_text(plan, 2), testing::AllOf(HasSubstr("MEMORY"), HasSubstr(" GB")));
  EXPECT_THAT(plan_json(plan, 2), HasSubstr("\"memory_bytes\""));
}

TEST(PlannedMemory, OfTheMachineIsKnown) { EXPECT_GT(machine_memory_bytes(), 1e8); }

const std::string kTimed = kHead +
                           "data: {source: synthetic}\nsteps: 50\nschedule: warmup\nwarmup_steps: 10\n"
                           "lr: 0.002\naxes: {layout: [8x3]}\n"
                           "timing: {layouts: [1x24, 8x3], steps: 40, repeats: 3}\n";

std::vector<PlannedRun> timed_runs(const Plan& plan) {
  std::vector<PlannedRun> runs;
  for (const PlannedRun& run : plan.runs) {
    if (run.role == RunRole::timing) runs.push_back(run);
  }
  return runs;
}

TEST(Timing, PlansEachLayoutSoOftenOnRealRanksWithoutATrace) {
  const std::vector<PlannedRun> runs = timed_runs(make_plan(parse(kTimed), "", {}));
  ASSERT_EQ(runs.size(), 6U);
  std::set<std::string> ids;
  std::map<std::string, int> names;
  for (const PlannedRun& run : runs) {
    EXPECT_TRUE(ids.insert(run.id).second) << run.id;
    ++names[run.cell];
    EXPECT_TRUE(run.exclusive);
    EXPECT_FALSE(run.reused);
    EXPECT_EQ(run.config.trace, TraceLevel::off);
    EXPECT_EQ(run.config.steps, 40);
    EXPECT_TRUE(run.config.eval_every.is_never());
    EXPECT_EQ(run.config.lr, 0.002) << "the matrix's base";
    EXPECT_EQ(run.config.warmup_steps, 0);
    EXPECT_EQ(run.config.backend, run.config.layout.world_size == 1 ? Backend::emulated : Backend::gloo);
    EXPECT_EQ(run.hash, config_hash(run.config));
    EXPECT_TRUE(run.needs.empty());
  }
  EXPECT_EQ(names, (std::map<std::string, int>{{"timing 1x24", 3}, {"timing 8x3", 3}}));
}

TEST(Timing, PlansNothingThatWasNotAskedFor) {
  EXPECT_THAT(timed_runs(make_plan(parse(kHead + "layout: 8x3\n"), "", {})), IsEmpty());
  EXPECT_THAT(timed_runs(make_plan(parse(kTimed, only("8x3")), "", {})), IsEmpty())
      << "a cell that is run again times nothing";
}

TEST(Timing, IsNeverReused) {
  const TempFolder folder;
  const BuildIdentity identity{"b", "t", "i", "d"};
  Plan plan = make_plan(parse(kTimed), folder.path(), identity);
  for (const PlannedRun& run : plan.runs) {
    const std::string dir = folder / ("runs/" + run.id);
    std::filesystem::create_directories(dir);
    write_text(dir + "/run.json", "{}");
    nlohmann::json done{{"config_hash", run.hash},
                        {"build", "b"},
                        {"libtorch", "t"},
                        {"isa", "i"},
                        {"data", "d"},
                        {"seconds", 2.0},
                        {"files", nlohmann::json::parse(evidence_json(dir))}};
    seal(done);
    write_text(dir + "/done", done.dump());
  }
  plan = make_plan(parse(kTimed), folder.path(), identity);
  for (const PlannedRun& run : plan.runs) {
    EXPECT_EQ(run.reused, run.role != RunRole::timing) << run.id;
    EXPECT_EQ(run.estimate_s, 2.0);
    if (run.role == RunRole::timing) {
      EXPECT_THAT(run.why, HasSubstr("never reused"));
    }
  }
  EXPECT_THAT(plan_text(plan, 2), HasSubstr("timing 8x3"));
}

TEST(Timing, TakesAllCoresInTheEstimate) {
  Plan plan;
  PlannedRun run;
  run.estimate_s = 10;
  plan.runs = {run, run};
  EXPECT_EQ(estimate_total_s(plan, 4), 10);
  plan.runs[0].exclusive = plan.runs[1].exclusive = true;
  EXPECT_EQ(estimate_total_s(plan, 4), 20);
}

TEST(TraceOff, IsComparedByItsResultsBetweenEqualLayoutsAlone) {
  const std::string paired =
      "# Is it so?\nname: x\nquestion: mechanism\nreference: {same_as: cell, trace: hash}\ncertify_steps: 0\n"
      "trace: off\nlayout: 3x8\n";
  EXPECT_THAT(problems_of(paired), IsEmpty());
  EXPECT_THAT(problems_of("# Is it so?\nname: x\nquestion: mechanism\nreference: {layout: 1x24}\n"
                          "certify_steps: 0\nforced_steps: []\ntrace: off\nlayout: 3x8\n"),
              ElementsAre(HasSubstr("trace: off keeps nothing to compare between two layouts")));
}

/// Keys and messages of what is wrong.
std::string wrong_with(const RunConfig& config, std::string_view question = "mechanism") {
  std::vector<std::string> wrong;
  const QuestionPlan& asks = question_named(question);
  for (const auto& [key, message] : training_problems(config, asks)) wrong.push_back(key + ": " + message);
  for (const auto& [key, message] : spec_of(config).problems(config, {asks.against_plain(), false}))
    wrong.push_back(key + ": " + message);
  return wrong.empty() ? "nothing is wrong" : fmt::format("{}", fmt::join(wrong, " | "));
}

TEST(TrainingChecks, RefuseWhatHasNoMeaningOrChangesNothing) {
  support::Said said;
  using Change = std::function<void(RunConfig&)>;
  const auto checked = [&](const char* what, const std::vector<Change>& changes,
                           std::string_view question = "mechanism") {
    RunConfig config;
    config.layout = {8, 3};
    for (const Change& change : changes) change(config);
    said(what, wrong_with(config, question));
  };
  const auto layout = [](int ranks, int rows) { return [=](RunConfig& c) { c.layout = {ranks, rows}; }; };
  const Change sgd = [](RunConfig& c) { c.optimizer = OptimizerKind::sgd; },
               adamw = [](RunConfig& c) { c.optimizer = OptimizerKind::adamw; },
               adam_sqrt = [](RunConfig& c) { c.lr_rule = LrRule::adam_sqrt; },
               saved = [](RunConfig& c) { c.checkpoint.every = 10; },
               sharded = [](RunConfig& c) { c.update = UpdatePartition::sharded; },
               bfloat16 = [](RunConfig& c) { c.precision = Precision::bfloat16; },
               order = [](RunConfig& c) { c.perturb = Perturbation::row_order; },
               draws = [](RunConfig& c) { c.perturb = Perturbation::random_draws; },
               as_written = [](RunConfig& c) { energy(c).layer.as_written = true; },
               layer = [](RunConfig& c) { energy(c).negatives = Negatives::layer; },
               drawn = [](RunConfig& c) { energy(c).dropout = energy(c).context_noise = 0; };
  const auto best = [](const char* metric) { return [=](RunConfig& c) { c.checkpoint.best = metric; }; };
  checked("a plain run", {});
  checked("adam_sqrt", {adam_sqrt});
  checked("adam_sqrt of sgd", {adam_sqrt, sgd});
  checked("adam_sqrt beyond its betas", {adam_sqrt, adamw, layout(10, 3)});
  checked("adam_sqrt with another beta", {adam_sqrt, adamw, layout(10, 3), [](RunConfig& c) { c.beta1 = 0.95; }});
  checked("checkpoints", {saved});
  checked("the best by a metric of evaluations", {saved, best("accuracy_24")});
  checked("the best by another", {saved, best("gradient_norm")});
  checked("checkpoints of a fault", {saved, [](RunConfig& c) { c.mutant.name = "flip_bit"; }});
  checked("a sharded update", {sharded});
  checked("a sharded update that is saved", {sharded, saved});
  checked("a sharded update in exact arithmetic", {sharded, [](RunConfig& c) { c.arithmetic = Arithmetic::exact; }});
  checked("bfloat16", {bfloat16});
  checked("bfloat16 in a certificate", {bfloat16}, "certificate");
  checked("bfloat16 of an oracle", {bfloat16, [](RunConfig& c) { c.oracle_world = 3; }});
  checked("another order of rows", {order});
  checked("another order in a certificate", {order}, "certificate");
  checked("another order with seeds by rank", {order, [](RunConfig& c) { c.rank_seed = RankSeed::plus_rank; }});
  checked("another order as written, where no negatives are made", {order, as_written});
  checked("another order as written", {order, as_written, layer});
  checked("another order of one row", {order, layout(24, 1)});
  checked("another order of two rows", {order, layout(12, 2)});
  checked("another order of micro-steps of a row", {order, layout(12, 2), [](RunConfig& c) { c.accumulation = 2; }});
  checked("other draws of nothing", {draws, drawn});
  checked("other draws of negatives", {draws, drawn, layer});
}

bool names(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }
TEST(TrainingChecks, StandInTheMatrixWithTheirPlace) {
  const std::vector<std::string> problems =
      problems_of(kHead + "axes:\n  layout: [8x3]\noptimizer: sgd\nlr_rule: adam_sqrt\n");
  ASSERT_FALSE(problems.empty());
  EXPECT_TRUE(names(problems.front(), "m.yaml:7:1:")) << problems.front();
  EXPECT_TRUE(names(problems.front(), "adam_sqrt")) << problems.front();
}

}  // namespace
}  // namespace lockstep
