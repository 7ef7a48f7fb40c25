// The whole tool with real ranks: the smoke matrix as CI runs it, clean and with faults planted.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class Smoke : public testing::Test {
 protected:
  ProgramEnd lockstep(std::vector<std::string> words) {
    words.insert(words.begin(), LOCKSTEP_BINARY_DIR "/bin/lockstep");
    return Program(words, folder_.path(), {}).end();
  }
  ProgramEnd run(const std::string& config, const std::string& out,
                 const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"run", LOCKSTEP_SOURCE_DIR "/configs/" + config, "--out", folder_ / out};
    words.insert(words.end(), more.begin(), more.end());
    return lockstep(words);
  }
  /// The run folder whose name begins so and has no role in it.
  std::string run_folder(const std::string& out, const std::string& prefix) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / out + "/runs")) {
      const std::string name = entry.path().filename();
      if (name.starts_with(prefix) && name.size() == prefix.size() + 9) {
        return entry.path();
      }
    }
    ADD_FAILURE() << "no run " << prefix << " in " << out;
    return {};
  }
  const TempFolder folder_;
};

TEST_F(Smoke, RealRanksComputeWhatOneProcessComputes) {
  const ProgramEnd end = run("smoke.yaml", "clean");
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_THAT(end.out, HasSubstr("within envelope"));
  for (const char* file : {"results.json", "report.html", "junit.xml", "summary.md"}) {
    EXPECT_TRUE(std::filesystem::exists(folder_ / "clean" + "/" + file)) << file;
  }
  const ProgramEnd again = run("smoke.yaml", "clean");
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.err, HasSubstr("9 reused"));
  EXPECT_THAT(again.err, HasSubstr("nothing has changed since these results were judged"));
  EXPECT_EQ(again.out, end.out);
}

TEST_F(Smoke, AGradientEightTimesTooLargeIsFoundAndTheCellNamed) {
  const ProgramEnd end =
      run("smoke.yaml", "planted", {"--set", "mutant.name=grad_scale", "--set", "mutant.factor=8"});
  EXPECT_EQ(end.code, 1) << end.out << end.err;
  const std::string junit = read_text(folder_ / "planted/junit.xml");
  EXPECT_THAT(junit, HasSubstr("<failure"));
  EXPECT_THAT(junit, HasSubstr("8x3 global"));
  const auto results = nlohmann::json::parse(read_text(folder_ / "planted/results.json"));
  for (const auto& verdict : results.at("verdicts")) {
    EXPECT_EQ(verdict.at("verdict"), "divergent");
    EXPECT_EQ(verdict.at("first_divergence").at("step"), 0);
  }
}

TEST_F(Smoke, AGroupScaledByAThousandthIsFoundAtTheFirstStep) {
  const ProgramEnd end = run("smoke.yaml", "slight",
                             {"--only", "layout==3x8", "--set", "mutant.name=grad_scale", "--set",
                              "mutant.factor=1.001", "--set", "mutant.tensor=action_encoder"});
  EXPECT_EQ(end.code, 1) << end.out << end.err;
  const auto results = nlohmann::json::parse(read_text(folder_ / "slight/results.json"));
  EXPECT_EQ(results.at("verdicts").at(0).at("first_divergence").at("step"), 0);
  EXPECT_THAT(std::string(results.at("verdicts").at(0).at("first_divergence").at("where")),
              HasSubstr("action_encoder"));
}

TEST_F(Smoke, AFaultThatNeverActsIsNoPass) {
  const auto planted = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.begin(), {"--only", "layout==3x8", "--set", "ranks=emulated"});
    return run("smoke.yaml", out, more);
  };
  const ProgramEnd unknown = planted("unknown", {"--set", "mutant.name=grad_scale", "--set",
                                                 "mutant.factor=8", "--set", "mutant.tensor=action_encodr"});
  EXPECT_EQ(unknown.code, 2) << unknown.out << unknown.err;
  EXPECT_THAT(unknown.err, HasSubstr("did you mean action_encoder?"));
  // Without running statistics their collectives are not called.
  const ProgramEnd idle = planted("idle", {"--set", "mutant.name=collective_missing"});
  EXPECT_EQ(idle.code, 1) << idle.out << idle.err;
  EXPECT_THAT(idle.out, HasSubstr("the planted fault collective_missing"));
  EXPECT_THAT(idle.out, HasSubstr("never acted"));
}

TEST_F(Smoke, WhatCannotBeJudgedIsUndecidedAndWhatCountsOnceIsNotMissed) {
  const ProgramEnd free = run("smoke.yaml", "free", {"--set", "ranks=emulated", "--set", "forced_steps=[]"});
  EXPECT_EQ(free.code, 5) << free.out << free.err;
  EXPECT_THAT(free.out, HasSubstr("were not judged: a mistake in them would not be seen"));
  const ProgramEnd rows = run("smoke.yaml", "rows", {"--set", "ranks=emulated", "--set", "invalid_rows=0.3"});
  EXPECT_EQ(rows.code, 0) << rows.out << rows.err;
}

TEST_F(Smoke, RanksThatFailAreNamed) {
  const auto planted = [&](const std::string& name, const std::string& ranks = "real") {
    return run(
        "smoke.yaml", name + ranks,
        {"--only", "layout==3x8", "--set", "mutant.name=" + name, "--set", "mutant.rank=1", "--set",
         "mutant.step=5", "--set", "timeout_s=3", "--set", "forced_steps=[]", "--set", "ranks=" + ranks});
  };
  const ProgramEnd died = planted("die");
  EXPECT_EQ(died.code, 3) << died.out << died.err;
  EXPECT_THAT(died.out + died.err, HasSubstr("rank 1"));
  const ProgramEnd threw = planted("throw");
  EXPECT_EQ(threw.code, 3) << threw.out << threw.err;
  EXPECT_THAT(threw.out + threw.err, HasSubstr("planted: this rank throws at step 5"));
  const ProgramEnd thread = planted("throw", "emulated");
  EXPECT_EQ(thread.code, 3) << thread.out << thread.err;
  EXPECT_THAT(thread.err, HasSubstr("first: rank 1, after 5 steps"));
  const ProgramEnd hung = planted("stall");
  EXPECT_EQ(hung.code, 4) << hung.out << hung.err;
  EXPECT_THAT(hung.out + hung.err, HasSubstr("rank 1"));
}

TEST_F(Smoke, PlantedBugsAreFoundAndNamedAndCleanTrialsRaiseNoAlarm) {
  const ProgramEnd end = run("mutants_smoke.yaml", "trials");
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_THAT(end.out, HasSubstr("false alarms on clean"));
  EXPECT_THAT(end.err, testing::Not(HasSubstr("FAILED")))
      << "a fault that ends its run as it must is no news";
  const auto results = nlohmann::json::parse(read_text(folder_ / "trials/results.json"));
  const auto& detection = results.at("detection");
  EXPECT_EQ(detection.at("false_alarms"), 0);
  EXPECT_EQ(detection.at("clean"), 12);
  for (const auto& row : detection.at("mutants")) {
    EXPECT_EQ(row.at("exact"), row.at("trials")) << row.dump();
    EXPECT_EQ(row.at("wrong_cause"), 0) << row.dump();
  }
}

TEST_F(Smoke, ADivergentStepIsKeptAndRepeatedAlone) {
  const ProgramEnd end = run("smoke.yaml", "planted",
                             {"--only", "layout==3x8", "--set", "ranks=emulated", "--set",
                              "mutant.name=sign_flipped", "--set", "mutant.step=5"});
  EXPECT_EQ(end.code, 1) << end.out << end.err;
  const auto first = nlohmann::json::parse(read_text(folder_ / "planted/results.json")).at("verdicts").at(0);
  EXPECT_EQ(first.at("cause").at("code"), "sign-flipped");
  const std::string replay =
      folder_ / "planted/replay/" + first.at("run").get<std::string>() + "/replay.yaml";
  EXPECT_THAT(first.at("replay").get<std::string>(), HasSubstr(replay));
  const ProgramEnd again = lockstep({"run", replay, "--out", folder_ / "again"});
  EXPECT_EQ(again.code, 0) << again.out << again.err;
  const auto second = nlohmann::json::parse(read_text(folder_ / "again/results.json")).at("verdicts").at(0);
  // Numbers are the same bits; the bound follows the worst of the steps that there are, and here there is one.
  const auto up_to_bound = [](nlohmann::json divergence) {
    for (const char* key : {"actual", "sentence"}) {
      const std::string text = divergence.at(key);
      EXPECT_THAT(text, HasSubstr(" times the float64 tolerance")) << key;
      divergence[key] = text.substr(0, text.find(", ", text.find("differs by")));
    }
    return divergence;
  };
  EXPECT_EQ(up_to_bound(second.at("first_divergence")), up_to_bound(first.at("first_divergence")));
  EXPECT_EQ(second.at("cause").at("code"), "sign-flipped");
  EXPECT_THAT(lockstep({"run", replay, "--out", folder_ / "again"}).err, HasSubstr(" 0 to do"));
  std::ofstream(replay.substr(0, replay.rfind('/')) + "/rank-0.trace", std::ios::app) << "another step";
  EXPECT_THAT(lockstep({"plan", replay, "--out", folder_ / "again"}).out, HasSubstr("the data changed"));
}

/// Series of two dimensions, as a `.ts` file.
std::string series_text(int series, int steps) {
  std::string text = "@classLabel false\n@data\n";
  for (int s = 0; s < series; ++s) {
    for (int d = 0; d < 2; ++d) {
      if (d > 0) text += ':';
      for (int t = 0; t < steps; ++t) text += (t > 0 ? "," : "") + std::to_string((s * 7 + t * (d + 1)) % 11);
    }
    text += '\n';
  }
  return text;
}

// Between plan and ranks somebody writes to the data: what trained on them is no run of the planned data.
TEST_F(Smoke, DataThatChangeWhileTheMatrixRunsFailItsRuns) {
  write_text(folder_ / "train.ts", series_text(12, 60));
  write_text(folder_ / "test.ts", series_text(6, 60));
  write_text(
      folder_ / "m.yaml",
      "name: m\ntrainer: energy\ndata: {source: ts_files, train_file: " + (folder_ / "train.ts") +
          ", test_file: " + (folder_ / "test.ts") +
          "}\nsteps: 3\nseeds: 0\nquestion: mechanism\ncertify_steps: 0\nforced_steps: []\neval_every: 0\n"
          "reference: {layout: 1x6}\naxes: {layout: [2x3]}\n");
  const auto run_with = [this](const std::string& before) {
    write_text(folder_ / "rank",
               "#!/bin/sh\n" + before + "\nexec " LOCKSTEP_BINARY_DIR "/bin/lockstep-rank \"$@\"\n");
    std::filesystem::permissions(folder_ / "rank", std::filesystem::perms::owner_all);
    return Program({LOCKSTEP_BINARY_DIR "/bin/lockstep", "run", "m.yaml"}, folder_.path(),
                   {{"LOCKSTEP_RANK", folder_ / "rank"}})
        .end();
  };
  const ProgramEnd changed = run_with("echo '1,2,3,4,5,6,7,8,9,10:1,2,3,4,5,6,7,8,9,10' >> train.ts");
  EXPECT_EQ(changed.code, 3) << changed.out << changed.err;
  EXPECT_THAT(changed.err,
              testing::ContainsRegex("the data changed while the matrix ran: its hash was [0-9a-f]{32} when "
                                     "the runs were planned, and rank [01] read [0-9a-f]{32}"));
  const ProgramEnd unchanged = run_with(":");
  EXPECT_EQ(unchanged.code, 0) << unchanged.out << unchanged.err;
  EXPECT_THAT(unchanged.err, HasSubstr(" 0 reused"));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "out/m/runs")) {
    if (entry.path().filename() != "rank-0.result.json") continue;
    const auto result = nlohmann::json::parse(read_text(entry.path()));
    const auto run = nlohmann::json::parse(read_text(entry.path().parent_path() / "run.json"));
    EXPECT_EQ(result.at("data_hash"), run.at("data_hash"));
    EXPECT_EQ(result.at("config_hash"), run.at("config_hash"));
  }
}

TEST_F(Smoke, CompareFindsTheFlippedBitAndReadsACutTrace) {
  // Short of the real thing in nothing but length: eight emulated ranks, one bit of one gradient on rank 5 at
  // step 17.
  const std::vector<std::string> cell{"--only",         "layout==8x3", "--set",
                                      "ranks=emulated", "--set",       "forced_steps=[]"};
  std::vector<std::string> flipped = cell;
  for (const char* word :
       {"mutant.name=flip_bit", "mutant.step=17", "mutant.rank=5", "mutant.tensor=energy_head.key.weight"}) {
    flipped.insert(flipped.end(), {"--set", word});
  }
  run("smoke.yaml", "a", cell);
  run("smoke.yaml", "b", flipped);
  const std::string a = run_folder("a", "8x3-global-s0");
  const std::string b = run_folder("b", "8x3-global-s0");
  if (a.empty() || b.empty()) {
    return;
  }
  const ProgramEnd same = lockstep({"compare", a, a});
  EXPECT_EQ(same.code, 0);
  EXPECT_THAT(same.out, HasSubstr("identical"));

  const ProgramEnd found = lockstep({"compare", a, b, "--json"});
  EXPECT_EQ(found.code, 1);
  const auto first = nlohmann::json::parse(found.out).at("first_divergence");
  EXPECT_EQ(first.at("step"), 17);
  EXPECT_EQ(first.at("rank"), 5);
  EXPECT_EQ(first.at("phase"), "local gradients");
  EXPECT_EQ(first.at("where"), "energy_head.key.weight");

  const std::string cut = folder_ / "cut";
  std::filesystem::copy(a, cut, std::filesystem::copy_options::recursive);
  std::filesystem::resize_file(cut + "/rank-3.trace",
                               std::filesystem::file_size(cut + "/rank-3.trace") / 2 + 5);
  const ProgramEnd shorter = lockstep({"compare", a, cut});
  EXPECT_EQ(shorter.code, 5) << shorter.out << shorter.err;
  EXPECT_THAT(shorter.out, HasSubstr("rank-3.trace"));
  EXPECT_EQ(lockstep({"compare", a, cut, "--steps", "5"}).code, 0);
  EXPECT_THAT(shorter.out, HasSubstr("after step"));
}

}  // namespace
}  // namespace lockstep
