#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <functional>
#include <fstream>
#include <regex>
#include <set>

#include "harness/base/json.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan.h"
#include "harness/plan/matrix/plan_history.h"
#include "scenarios/energy/spec.h"
#include "tests/harness/plan/matrix/matrix_helpers.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

/// Each run with what parts its config from the first one's, without hashes.
std::vector<std::string> texts_of(const Plan& plan) {
  std::vector<std::string> texts;
  for (const PlannedRun& run : plan.runs) {
    std::string text = fmt::format("{} {}", name_of(run.role), run.id);
    text += differences(plan.runs.front().config, run.config);
    if (!run.needs.empty()) text += fmt::format(" needs {}", fmt::join(run.needs, ", "));
    texts.push_back(std::regex_replace(text, std::regex("-[0-9a-f]{8}(?![0-9a-z])"), ""));
  }
  return texts;
}

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Plan plan_of(const std::string& text, const Overrides& overrides = {}) {
  return make_plan(parse(text, overrides), "", {});
}

const std::string kOutcome =
    "name: x\nsteps: 100\nquestion: outcome\nseeds: 3..5\nreference: {layout: 1x24}\n"
    "axes: {layout: [8x3], lr_scale: [1, 0.125]}\npower_controls: [{lr_scale: 0.125}]\n";

TEST(Plan, HasEveryRunOfAnOutcomeOnce) {
  const Plan plan = plan_of(kOutcome);
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

TEST(Plan, HasTheRunsThatItsQuestionTakesAndNoOthers) {
  support::Said said;
  std::vector<std::string> first;
  const auto planned = [&](const char* what, const std::string& text, const Overrides& overrides = {}) {
    std::vector<std::string> runs;
    const std::string problem = support::thrown_by([&] { runs = texts_of(plan_of(text, overrides)); });
    if (first.empty()) first = runs;
    // Runs of the first plan are written by their number there.
    else for (std::string& run : runs) {
      const auto known = std::ranges::find(first, run);
      if (known != first.end()) run = std::to_string(known - first.begin() + 1);
    }
    said(what, runs.empty() ? problem : fmt::format("{}", fmt::join(runs, " | ")));
  };
  planned("an outcome", kOutcome);
  planned("runs that go on from another cell's", kResumed);
  planned("without that cell", kResumed, only("layout==3x8"));
  planned("snapshots of the user's own", kOutcome, set({"snapshot_steps=[7, 20]"}));
  planned("a short run is certified whole", kOutcome, set({"steps=30"}));
  planned("no prefix", kOutcome, set({"certify_steps=0"}));
  planned("emulated alone", kOutcome, set({"ranks=emulated"}));
  planned("real alone", kOutcome, set({"ranks=real"}));
  planned("real on another transport", kOutcome, set({"ranks=real", "backend=gloo_cuda"}));
  planned("nothing to certify", kOutcome, set({"layout=1x24", "reference.dropout=0"}));
  const std::string short_run = "name: x\nsteps: 8\nseeds: 3\ncertify_steps: 5\nreference: {layout: 1x24}\n";
  planned("emulated runs are shared by backends", short_run + "question: mechanism\nforced_steps: [0]\naxes: {layout: [8x3], backend: [gloo, gloo_cuda, nccl]}\n");
  planned("a backend without an order", short_run + "backend: nccl\naxes: {layout: [8x3]}\n");
  planned("a backend without an order, exact", short_run + "backend: nccl\narithmetic: exact\naxes: {layout: [8x3]}\n");
  planned("a loss that takes some candidates", kOutcome + "loss: hard\n");
  planned("the same with a bound", kOutcome + "loss: hard\n", set({"band.exact=1e-12"}));
  planned("nothing forced", kOutcome, set({"forced_steps=[]"}));
  const std::string pairs = "name: x\nranks: real\nreference: {same_as: cell, ";
  planned("pairs of one layout", pairs + "ranks: emulated}\naxes: {layout: [3x8, 8x3]}\n");
  planned("pairs of two layouts", pairs + "layout: 1x24}\naxes: {layout: [3x8, 8x3], optimizer: [sgd, adam]}\n");
  planned("a batch of another size", kHead + "axes: {layout: [5x5, 8x3]}\nallow_unequal_batch: true\n");
  planned("noise is not certified", kOutcome + "noise: [row_order]\n");
  planned("a planted fault", kOutcome, set({"mutant.name=grad_scale", "mutant.factor=8"}));
  planned("no cells", kOutcome, only("nothing_like_it"));
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
  support::Said said;
  const std::string head = "name: m\ndata: {source: synthetic}\nsteps: 100\nseeds: 0\nquestion: mechanism\nreference: {layout: 1x24}\naxes: {layout: [8x3]}\n";
  for (const std::string more : {"checkpoint: {every: 10}\neval_every: 25", "checkpoint: {every: 30}\neval_every: 25",
                                 "checkpoint: {every: 5}\neval_every: 25", "eval_every: 25"}) {
    std::istringstream lines(plan_text(plan_of(head + more + "\n"), 2));
    std::string found = "nothing";
    for (std::string line; std::getline(lines, line);)
      if (line.find("best_model") != std::string::npos) found = line;
    said(replaced(more, "\n", ", "), found);
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

TEST(FindRun, FindsReferencesByTheirOwnNameAndByTheCells) {
  const Plan plan = plan_of(kOutcome);
  EXPECT_EQ(find_run(plan, "8x3", RunRole::reference, 4), find_run(plan, "1x24", RunRole::reference, 4));
  EXPECT_EQ(find_run(plan, "8x3", RunRole::reference, 4)->config.seed, 4);
  EXPECT_EQ(find_run(plan, "8x3", RunRole::cell, 9), nullptr);
  EXPECT_EQ(find_run(plan, "1x24", RunRole::cell, 3), nullptr);
  EXPECT_NE(find_run(plan, "8x3", RunRole::forced_reference, 99), nullptr)
      << "the seed selects free runs alone";
}

TEST(PlanText, SaysWhatWouldRunForHowLongAndWhatHasNoPowerControl) {
  support::Said said;
  said("an outcome", plan_text(plan_of(kOutcome), 2));
  const std::string text =
      "name: x\nsteps: 100\nquestion: outcome\nseeds: 3..5\nreference: {same_as: cell, layout: 1x24, lr_scale: 1}\n"
      "axes: {layout: [8x3], negatives: [global, local, layer]}\ninclude: [{lr_scale: 0.125}]\n"
      "power_controls: [{lr_scale: 0.125}]\n";
  said("references without a control", plan_text(plan_of(text), 2));
  EXPECT_EQ(nlohmann::json::parse(plan_json(plan_of(text), 2))["without_power_control"],
            nlohmann::json({"1x24 local", "1x24 layer"}));
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
  History() : matrix_(parse(kHead + "axes: {layout: [8x3, 3x8]}\nsteps: 100\n")) {}

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

  const TempFolder folder_;
  const std::string out_ = folder_ / "out";
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
  support::Said said;
  for (const BuildIdentity& identity : {BuildIdentity{"b2", "2.13", "avx2", "d1"},
                                        {"b1", "2.14", "avx2", "d1"},
                                        {"b1", "2.13", "avx512", "d1"},
                                        {"b1", "2.13", "avx2", "d2"}}) {
    const PlannedRun run = plan(identity).runs[0];
    EXPECT_FALSE(run.reused);
    said(fmt::format("{} {} {} {}", identity.build, identity.libtorch, identity.isa, identity.data), run.why);
  }
}

TEST_F(History, DoesNotReuseWhatIsNotWholeOrOfAnotherVersionAndSaysWhy) {
  support::Said said;
  const auto why = [&](const std::string& what) {
    const PlannedRun run = plan().runs[0];
    said(what, run.reused ? "reused" : run.why + (run.damaged ? " (damaged)" : ""));
  };
  const PlannedRun first = plan().runs[0];
  const std::string dir = out_ + "/runs/" + first.id, done = dir + "/done";
  fs::create_directories(dir);
  why("no done");
  for (const std::string text : {"", "{", "[]", "{}", R"({"config_hash": 3})"}) {
    write(done, text);
    why(text);
  }
  PlannedRun other = first;
  other.hash = "0123456789abcdef";
  finish(other);
  why("of another config");
  finish(first);
  nlohmann::json old = nlohmann::json::parse(std::ifstream(done));
  old.erase("checksum");
  write(done, old.dump());
  why("no checksum");
  old["files"] = {{"run.json", 2}};  // sizes alone
  seal(old);
  write(done, old.dump());
  why("sizes alone");
  old.erase("files");
  seal(old);
  write(done, old.dump());
  why("no files");
  // As the launcher leaves it: ranks' files, and their checksums in `done`.
  const std::pair<const char*, std::function<void()>> changes[] = {
      {"whole", [] {}},
      {"no trace", [&] { fs::remove(dir + "/rank-0.trace"); }},
      {"a trace more", [&] { write(dir + "/rank-1.trace", "of whom?"); }},
      {"a shorter trace", [&] { write(dir + "/rank-0.trace", "01234"); }},
      {"no result", [&] { fs::remove(dir + "/rank-0.result.json"); }},
      {"a longer log", [&] { write(dir + "/rank-0.log", "said later"); }},
  };
  for (const auto& [what, change] : changes) {
    fs::remove(dir + "/rank-1.trace");
    write(dir + "/rank-0.trace", "0123456789");
    write(dir + "/rank-0.result.json", "{}");
    finish(first);
    change();
    why(what);
  }
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
