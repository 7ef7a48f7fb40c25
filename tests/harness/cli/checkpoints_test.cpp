// Runs with checkpoints under the whole tool, told to end by signals, and `lockstep checkpoints`.

#include <gmock/gmock.h>
#include <poll.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kConfig = R"(name: saving
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
  CheckpointsProgram() { write_text(folder_ / "saving.yaml", kConfig); }
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

}  // namespace
}  // namespace lockstep
