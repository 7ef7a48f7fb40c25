#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "harness/judge/causes/rules.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

// The whole tool with real ranks: the smoke matrix as CI runs it, clean and with faults planted.

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
}

TEST_F(Smoke, TheNodesOfAJobAddUpEveryElement) {
  std::vector<std::unique_ptr<Program>> nodes;
  for (const std::string rank : {"0", "1", "2"}) {
    const std::vector<std::string> words{LOCKSTEP_BINARY_DIR "/bin/lockstep", "doctor", "--nodes", "--out", folder_.path()};
    const std::vector<std::pair<std::string, std::string>> variables{
        {"LOCKSTEP_WORLD_SIZE", "3"}, {"LOCKSTEP_RANK_ID", rank}, {"LOCKSTEP_HOST", "n" + rank}};
    nodes.push_back(std::make_unique<Program>(words, folder_.path(), variables));
  }
  for (std::size_t other = 1; other < nodes.size(); ++other) EXPECT_EQ(nodes[other]->end().code, 0);
  EXPECT_THAT(nodes[0]->end().out, testing::ContainsRegex("ok +all-reduce +3 real ranks on Gloo agree bit for bit, and every "
                                                          "element is right; 4 kB in .+ GB/s; 64 MB in .+ GB/s"));
  EXPECT_THAT(lockstep({"doctor"}).out, HasSubstr("2 real ranks on Gloo agree bit for bit, and every element is right; 4 kB in"));
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
  EXPECT_THAT(same.out, HasSubstr("✓ the same: every bit of"));

  const ProgramEnd found = lockstep({"compare", a, b, "--json", "--html", folder_ / "drawn.html", "--md", folder_ / "drawn.md"});
  EXPECT_EQ(found.code, 1);
  EXPECT_THAT(read_text(folder_ / "drawn.html"), HasSubstr("<title>Loss</title>"));
  EXPECT_THAT(read_text(folder_ / "drawn.md"), HasSubstr("first difference: 17"));
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

// Runs with checkpoints under the whole tool, told to end by signals, and `lockstep checkpoints`.

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Not;

constexpr const char* kSaving = R"(name: saving
trainer: energy
data: {source: synthetic, series: 24, series_steps: 40}
model: {width: 8, hidden: 16}
seeds: 0
question: mechanism
ranks: real
certify_steps: 0
forced_steps: []
eval_every: 0
checkpoint: {every: 20, keep: 3}
reference: {layout: 3x8}
axes: {layout: [3x8], clip_norm: [1]}
)";

/// Processes that this one has started, and theirs.
std::vector<pid_t> descendants_of(pid_t root) {
  std::map<pid_t, pid_t> parents;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t process = static_cast<pid_t>(std::atol(entry.path().filename().c_str()));
    std::ifstream stat(entry.path() / "stat");
    std::string text;
    if (process <= 0 || !std::getline(stat, text)) continue;
    parents[process] = static_cast<pid_t>(std::atol(text.c_str() + text.rfind(')') + 4));
  }
  std::vector<pid_t> found;
  for (const auto& [process, parent] : parents) {
    for (pid_t at = process; at > 1; at = parents.contains(at) ? parents.at(at) : 0) {
      if (at != root) continue;
      found.push_back(process);
      break;
    }
  }
  return found;
}

class CheckpointsProgram : public testing::Test {
 protected:
  CheckpointsProgram() { write_text(folder_ / "saving.yaml", kSaving); }
  std::vector<std::string> words(std::vector<std::string> more) {
    more.insert(more.begin(), LOCKSTEP_BINARY_DIR "/bin/lockstep");
    return more;
  }
  ProgramEnd lockstep(std::vector<std::string> more) { return Program(words(std::move(more)), folder_.path(), {}).end(); }
  /// A run of very many steps, which has saved once.
  std::unique_ptr<Program> saving() {
    auto program = std::make_unique<Program>(words({"run", "saving.yaml", "--out", "out", "--jobs", "1", "--set", "steps=20000"}), folder_.path(),
                                             std::vector<std::pair<std::string, std::string>>{});
    for (int waited = 0; waited < 60'000 && !has_saved(); waited += 5) ::poll(nullptr, 0, 5);
    EXPECT_TRUE(has_saved());
    return program;
  }
  bool has_saved() {
    std::error_code none;
    for (fs::recursive_directory_iterator at(folder_ / "out/runs", none), end; !none && at != end; at.increment(none)) {
      if (at->path().filename() == "commit.json") return true;
    }
    return false;
  }
  /// The rank that its own heartbeat, its log and its parent know as rank 0.
  nlohmann::json result_of_run() {
    for (const auto& entry : fs::directory_iterator(folder_ / "out/runs")) {
      if (fs::exists(entry.path() / "rank-0.result.json")) return nlohmann::json::parse(read_text((entry.path() / "rank-0.result.json").string()));
    }
    return {};
  }
  void expect_saved_and_stopped(const ProgramEnd& end, int code, int signal) {
    EXPECT_EQ(end.code, code) << end.err;
    EXPECT_THAT(end.err, AllOf(HasSubstr("stopped   "), Not(HasSubstr("rank parent"))));
    const nlohmann::json result = result_of_run();
    EXPECT_EQ(result.at("status"), "interrupted");
    EXPECT_EQ(result.at("checkpoints").at("stop_signal"), signal);
    EXPECT_THAT(std::string(result.at("error")), HasSubstr("saved as step " + result.at("steps_done").dump()));
  }
  const TempFolder folder_;
};

TEST_F(CheckpointsProgram, SavesAndStopsWhenTheWholeJobIsTold) {
  const auto program = saving();
  for (const pid_t process : descendants_of(program->process())) ::kill(process, SIGTERM);
  expect_saved_and_stopped(program->end(), 130, SIGTERM);
}

TEST_F(CheckpointsProgram, AFurtherSignalCutsNoSaveShort) {
  const auto program = saving();
  for (const int signal : {SIGUSR1, SIGTERM, SIGTERM}) {
    for (const pid_t process : descendants_of(program->process())) ::kill(process, signal);
    ::poll(nullptr, 0, 2);
  }
  const ProgramEnd end = program->end();
  EXPECT_EQ(end.code, 138) << "it was warned first: " << end.err;
  EXPECT_THAT(std::string(result_of_run().at("error")), HasSubstr("saved as step "));
}

TEST_F(CheckpointsProgram, TheExitCodeIsThatOfTheSignalWhoeverWasTold) {
  const auto program = saving();
  const std::vector<pid_t> processes = descendants_of(program->process());
  ::kill(processes.back(), SIGUSR1);  // the last rank
  expect_saved_and_stopped(program->end(), 138, SIGUSR1);
}

TEST_F(CheckpointsProgram, ListsAndVerifiesThem) {
  ASSERT_EQ(lockstep({"run", "saving.yaml", "--out", "out", "--set", "steps=60"}).code, 0);
  const ProgramEnd whole = lockstep({"checkpoints", "out"});
  EXPECT_EQ(whole.code, 0) << whole.out << whole.err;
  EXPECT_THAT(whole.out, AllOf(HasSubstr("3 checkpoints count"), HasSubstr("whole, newest, best"), HasSubstr("3 ranks")));
  std::string damaged;
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "out/runs")) {
    if (entry.path().extension() == ".safetensors" && entry.path().string().find("_step_60/") != std::string::npos) damaged = entry.path().string();
  }
  ASSERT_FALSE(damaged.empty());
  std::string bytes = read_text(damaged);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(damaged, bytes);
  const ProgramEnd found = lockstep({"checkpoints", "out", "--json"});
  EXPECT_EQ(found.code, 1);
  int whole_ones = 0;
  for (const nlohmann::json& root : nlohmann::json::parse(found.out)) {
    const nlohmann::json newest = root.at("checkpoints").at(0);
    if (!damaged.starts_with((folder_.path() / fs::path(root.at("folder").get<std::string>())).string())) {
      whole_ones += newest.at("state") == "whole" ? 1 : 0;
      continue;
    }
    EXPECT_EQ(newest.at("state"), "damaged");
    EXPECT_THAT(newest.at("problem").get<std::string>(), HasSubstr(fs::path(damaged).filename().string() + ": hash"));
  }
  EXPECT_EQ(whole_ones, 1);
  EXPECT_EQ(lockstep({"checkpoints", "saving.yaml"}).code, 2);
  EXPECT_EQ(lockstep({"checkpoints", "."}).code, 6);
}

// Collectives of real ranks over what a config asks for, with the host in the place of GPUs: who certifies them, and by what.

using Variables = std::vector<std::pair<std::string, std::string>>;

const char* const kCarried = R"(name: carried
data: {source: synthetic}
steps: 6
seeds: 0
question: mechanism
certify_steps: 5
eval_every: 0
backend: nccl
reference: {same_as: cell, gradient_as_bucket_view: true}
axes: {layout: [3x4]}
)";

class Carried : public testing::Test {
 protected:
  Carried() { write_text(folder_ / "carried.yaml", kCarried); }

  /// With eight GPUs that are the host.
  static Variables host(Variables more = {}) {
    more.insert(more.begin(), {{"LOCKSTEP_GPU_PLUGIN", HOST_PLUGIN}, {"LOCKSTEP_HOST_PLUGIN_GPUS", "8"}});
    return more;
  }
  ProgramEnd run(const std::string& out, const Variables& variables, const std::vector<std::string>& set = {}) {
    std::vector<std::string> words{LOCKSTEP_BINARY_DIR "/bin/lockstep", "run", folder_ / "carried.yaml", "--out", folder_ / out};
    for (const std::string& each : set) words.insert(words.end(), {"--set", each});
    return Program(words, folder_.path(), variables).end();
  }
  nlohmann::json cell(const std::string& out) {
    return nlohmann::json::parse(read_text(folder_ / out + "/results.json")).at("verdicts").at(0);
  }
  nlohmann::json certification(const std::string& out) { return cell(out).at("certification"); }
  std::string prefix_of(const std::string& out) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / out + "/runs")) {
      if (const std::string name = entry.path().filename(); name.starts_with("3x4-s0-certify-") && !name.starts_with("3x4-s0-certify-forced"))
        return entry.path();
    }
    ADD_FAILURE() << "no prefix in " << out;
    return {};
  }
  bool anything_started(const std::string& out) { return std::filesystem::exists(folder_ / out + "/runs"); }

  const TempFolder folder_;
};

TEST_F(Carried, ByNcclTheyAreCertifiedByBitsWhereTheseAgree) {
  const ProgramEnd end = run("bits", host(), {"watch.comm_check=true"});
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_THAT(end.out, HasSubstr("certified bit for bit on 3 real NCCL ranks: 5 steps of each cell"));
  const nlohmann::json c = certification("bits");
  EXPECT_EQ(c.at("backend"), "nccl");
  EXPECT_EQ(c.at("certify"), "bits");
  EXPECT_EQ(c.at("steps"), 5);
  const auto said = nlohmann::json::parse(read_text(prefix_of("bits") + "/rank-0.result.json"));
  EXPECT_EQ(said.at("carrier").at("name"), "nccl");
  EXPECT_EQ(said.at("carrier").at("certified_by"), "band") << "so NCCL may be held to one";
  EXPECT_THAT(read_text(folder_ / "bits/junit.xml"), HasSubstr(R"(name="certified_by" value="bits on nccl")"));
  const ProgramEnd executed = run("executed", host(), {"process_start=executed", "backend=gloo_cuda"});
  EXPECT_EQ(executed.code, 0) << executed.out << executed.err;
  EXPECT_THAT(executed.out, HasSubstr("certified bit for bit on 3 real Gloo (GPU) ranks"));
}

TEST_F(Carried, InAnotherOrderTheyLieWithinTheBandOfNcclAndOfNobodyElse) {
  const Variables reversed = host({{"LOCKSTEP_HOST_PLUGIN_ADDS", "reversed"}});
  const ProgramEnd band = run("band", reversed);
  EXPECT_EQ(band.code, 0) << band.out << band.err;
  EXPECT_THAT(band.out, HasSubstr("within tolerance on 3 real NCCL ranks: 5 steps of each cell"));
  EXPECT_THAT(band.out, HasSubstr("NCCL does not specify its summation order"));
  const nlohmann::json c = certification("band");
  EXPECT_EQ(c.at("certify"), "band");
  EXPECT_EQ(c.at("steps"), 5);
  EXPECT_TRUE(c.at("divergence").is_null());
  EXPECT_THAT(read_text(folder_ / "band/report.html"), HasSubstr("≈ within tolerance"));
  EXPECT_THAT(read_text(folder_ / "band/summary.md"), HasSubstr("within tolerance on 3 real NCCL ranks"));

  Variables pinned = reversed;
  pinned.insert(pinned.end(), {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple"}});
  const ProgramEnd bits = run("pinned", pinned);
  EXPECT_EQ(bits.code, 1) << bits.out << bits.err;
  const ProgramEnd gloo = run("gloo", reversed, {"backend=gloo_cuda"});
  EXPECT_EQ(gloo.code, 1) << gloo.out << gloo.err;
  for (const char* out : {"pinned", "gloo"}) {
    EXPECT_EQ(certification(out).at("certify"), "bits") << out;
    EXPECT_EQ(certification(out).at("divergence").at("kind"), "bits") << out;
    EXPECT_EQ(cell(out).at("verdict"), "divergent") << out;
  }
}

TEST_F(Carried, WithoutARanksPartTheyLieOutsideTheBand) {
  const ProgramEnd end = run("drops", host({{"LOCKSTEP_HOST_PLUGIN_ADDS", "drops"}}));
  EXPECT_EQ(end.code, 1) << end.out << end.err;
  const nlohmann::json c = certification("drops");
  EXPECT_EQ(c.at("certify"), "band");
  EXPECT_EQ(c.at("steps"), 0);
  const nlohmann::json& first = c.at("divergence");
  EXPECT_EQ(first.at("step"), 0);
  EXPECT_EQ(first.at("phase"), "reduced gradients");
  EXPECT_EQ(first.at("rank"), 1);
  EXPECT_THAT(std::string(first.at("sentence")), HasSubstr("rank 1's is missing"));
  EXPECT_EQ(cell("drops").at("verdict"), "divergent");
}

TEST_F(Carried, AreRefusedBeforeAnythingStartsWhereTheyCannotBe) {
  const auto refused = [&](const std::string& out, const Variables& variables, const std::string& says, const std::vector<std::string>& set = {}) {
    expect_usage_error(run(out, variables, set), HasSubstr(says));
    EXPECT_FALSE(anything_started(out)) << out;
  };
  refused("missing", {{"LOCKSTEP_GPU_PLUGIN", "/nowhere/lockstep-gpu.so"}},
          "backend nccl: collectives on GPUs need the plugin /nowhere/lockstep-gpu.so, which is not there: build it with");
  refused("elsewhere", {{"LOCKSTEP_GPU_PLUGIN", "/nowhere/lockstep-gpu.so"}}, "which is not there: build it with",
          {"launcher=external:sh {rank_program} run {run}"});
  refused("other", {{"LOCKSTEP_GPU_PLUGIN", OTHER_PLUGIN}}, "is lockstep-gpu 0, LibTorch 1.0.0, and this program wants lockstep-gpu 2");
  refused("few", host({{"LOCKSTEP_HOST_PLUGIN_GPUS", "2"}}), "3 ranks of this one see 2 GPUs");
  refused("none", host({{"LOCKSTEP_HOST_PLUGIN_GPUS", "0"}}), "backend gloo_cuda: CUDA sees no GPU here", {"backend=gloo_cuda"});
  refused("emulated", host(), "carried.yaml:8:1: backend nccl has no effect", {"ranks=emulated"});
  const ProgramEnd shared = run("shared", host({{"LOCKSTEP_HOST_PLUGIN_GPUS", "2"}}), {"backend=gloo_cuda"});
  EXPECT_EQ(shared.code, 0) << shared.out << shared.err;
  // What has run already needs no GPU.
  const ProgramEnd again = run("shared", {{"LOCKSTEP_GPU_PLUGIN", "/nowhere/lockstep-gpu.so"}}, {"backend=gloo_cuda"});
  EXPECT_EQ(again.code, 0) << again.out << again.err;
}

TEST_F(Carried, SayThemselvesWhatIsMissingWhereSomebodyElseStartsThem) {
  const ProgramEnd prepared =
      Program({LOCKSTEP_BINARY_DIR "/bin/lockstep", "plan", folder_ / "carried.yaml", "--prepare", "--out", folder_ / "out"}, folder_.path(), {}).end();
  ASSERT_EQ(prepared.code, 0) << prepared.err;
  const std::string run = prefix_of("out");
  const auto start = [&](const Variables& variables) {
    std::vector<std::unique_ptr<Program>> ranks;
    for (const char* rank : {"0", "1", "2"}) {
      ranks.push_back(std::make_unique<Program>(
          std::vector<std::string>{LOCKSTEP_BINARY_DIR "/bin/lockstep-rank", "run", run, "--rank", rank, "--world", "3"}, folder_.path(), variables));
    }
    std::vector<int> codes;
    for (const auto& rank : ranks) codes.push_back(rank->end().code);
    return codes;
  };
  EXPECT_THAT(start({{"LOCKSTEP_GPU_PLUGIN", "/nowhere/lockstep-gpu.so"}}), testing::Each(testing::Ne(0)));
  EXPECT_THAT(read_text(run + "/rank-2.result.json"), HasSubstr("which is not there"));
  EXPECT_THAT(start(host()), testing::Each(0)) << read_text(run + "/rank-0.log");
}

TEST_F(Carried, HaveAConfigThatSaysWhatItNeeds) {
  Program program({LOCKSTEP_BINARY_DIR "/bin/lockstep", "run", LOCKSTEP_SOURCE_DIR "/configs/nccl.yaml", "--out", folder_ / "nccl"}, folder_.path(),
                  {{"LOCKSTEP_GPU_PLUGIN", "/nowhere/lockstep-gpu.so"}});
  expect_usage_error(program.end(), HasSubstr("cmake --preset gpu"));
}

// Runs are trained anew when the rank program changes: it must not change with what is said of them.

TEST(RankProgram, HoldsNoSentenceOfACause) {
  const std::string ranks = read_text(LOCKSTEP_BINARY_DIR "/bin/lockstep-rank");
  const std::string judges = read_text(LOCKSTEP_BINARY_DIR "/bin/lockstep");
  ASSERT_FALSE(ranks.empty());
  for (const CausePage& page : cause_pages()) {
    EXPECT_NE(judges.find(page.what), std::string::npos) << page.code;
    EXPECT_EQ(ranks.find(page.what), std::string::npos) << page.code;
  }
}

}  // namespace
}  // namespace lockstep
