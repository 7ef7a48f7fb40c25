#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/base/json.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/plan/plan.h"
#include "harness/verdict/plan/plan_history.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

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
