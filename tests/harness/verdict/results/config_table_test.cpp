#include "harness/verdict/results/config_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/base/json.h"
#include "scenarios/energy/config.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Pair;

TEST(ConfigRows, AreDottedKeys) {
  RunConfig config;
  energy(config).data.stride = 7;
  const Rows rows = config_rows(config);
  EXPECT_THAT(rows, Contains(Pair("data.stride", "7")));
  EXPECT_THAT(rows, Contains(Pair("seed", "0")));
}

Matrix two_cells() {
  Matrix matrix;
  matrix.cells.resize(2);
  matrix.cells[0].name = "8x3 local";
  matrix.cells[0].settings = {{"layout", "8x3"}, {"negatives", "local"}};
  matrix.cells[1].name = "8x3 it's \"global\"";
  matrix.cells[1].settings = {{"layout", "8x3"}, {"negatives", "it's global"}};
  return matrix;
}

TEST(RerunLine, NarrowsTheCommandToTheCell) {
  const Matrix matrix = two_cells();
  EXPECT_EQ(rerun_line("lockstep run a.yaml --out o", matrix, matrix.cells[0]),
            "lockstep run a.yaml --out o --only 'layout==8x3 && negatives==local'");
}

TEST(RerunLine, QuotesValuesForTheExpressionAndForTheShell) {
  const Matrix matrix = two_cells();
  EXPECT_EQ(rerun_line("lockstep run a.yaml", matrix, matrix.cells[1]),
            R"(lockstep run a.yaml --only 'layout==8x3 && negatives=="it'\''s global"')");
}

TEST(RerunLine, UsesTheNameWhereSettingsDoNotTellCellsApart) {
  Matrix matrix = two_cells();
  matrix.cells[1].settings = matrix.cells[0].settings;
  EXPECT_EQ(rerun_line("lockstep run a.yaml", matrix, matrix.cells[0]),
            R"(lockstep run a.yaml --only '8x3 local')");
}

TEST(RerunLine, UsesTheNameWhereAnotherCellSetsMoreBesides) {
  Matrix matrix = two_cells();
  matrix.cells[1].settings = matrix.cells[0].settings;
  matrix.cells[1].settings.emplace_back("lr_scale", "0.125");
  EXPECT_EQ(rerun_line("lockstep run a.yaml", matrix, matrix.cells[0]),
            R"(lockstep run a.yaml --only '8x3 local')");
  EXPECT_EQ(rerun_line("lockstep run a.yaml", matrix, matrix.cells[1]),
            "lockstep run a.yaml --only 'layout==8x3 && negatives==local && lr_scale==0.125'");
}

TEST(RerunLine, UsesTheNameWhereAValueCannotBeQuoted) {
  Matrix matrix = two_cells();
  matrix.cells[1].settings[1].second = matrix.cells[1].name;
  EXPECT_EQ(rerun_line("lockstep run a.yaml", matrix, matrix.cells[1]),
            R"(lockstep run a.yaml --only '8x3 it'\''s "global"')");
}

TEST(RerunLine, ReplacesAnEarlierSelection) {
  const Matrix matrix = two_cells();
  for (const std::string only :
       {"--only 'negatives==local || name==\"a b\"'", "--only=lr==1", "--only negatives\\ x"}) {
    EXPECT_EQ(rerun_line("lockstep run 'my file.yaml' " + only + " --seeds 0..3", matrix, matrix.cells[0]),
              "lockstep run 'my file.yaml' --seeds 0..3 --only 'layout==8x3 && negatives==local'");
  }
}

class Provenance : public testing::Test {
 protected:
  Provenance() : out_(testing::TempDir() + "lockstep_provenance_" + std::to_string(::getpid())) {
    for (const char* id : {"a", "b", "c"}) {
      PlannedRun run;
      run.id = id;
      plan_.runs.push_back(run);
    }
    plan_.runs[2].reused = true;
  }
  ~Provenance() override { std::filesystem::remove_all(out_); }
  void write_text(const std::string& id, const std::string& text) {
    std::filesystem::create_directories(out_ + "/runs/" + id);
    std::ofstream(out_ + "/runs/" + id + "/run.json") << text;
  }
  void write(const std::string& id, const std::string& text) {
    nlohmann::json run = nlohmann::json::parse(text);
    seal(run);
    write_text(id, run.dump());
  }

  std::string out_;
  Plan plan_;
};

TEST_F(Provenance, PutsWhatDiffersFirst) {
  write("a", R"({"provenance": {"build": "b1", "host": "one", "threads": "1"}})");
  write("b", R"({"provenance": {"build": "b2", "host": "one", "threads": "1"}})");
  write("c", R"({"provenance": {"build": "b1", "host": "one"}})");
  EXPECT_THAT(
      gather_provenance(plan_, out_),
      ElementsAre(Pair("build", "2 runs: b1; 1 run: b2"), Pair("threads", "2 runs: 1; 1 run: not said"),
                  Pair("host", "one"), Pair("plan", "3 runs, 1 of them reused")));
}

TEST_F(Provenance, NamesRunsThatSayNothing) {
  write("a", R"({"provenance": {"host": "one"}})");
  write_text("b", R"({"provenance": {"host")");
  EXPECT_THAT(gather_provenance(plan_, out_),
              ElementsAre(Pair("without run.json", "b, c"), Pair("host", "one"),
                          Pair("plan", "3 runs, 1 of them reused")));
}

TEST_F(Provenance, TakesNothingFromADamagedDescription) {
  for (const char* id : {"a", "b", "c"}) write(id, R"({"provenance": {"host": "one"}})");
  write_text("b", R"({"provenance": {"host": "two"}, "checksum": "0123456789abcdef"})");
  EXPECT_THAT(gather_provenance(plan_, out_), ElementsAre(Pair("without run.json", "b"), Pair("host", "one"),
                                                          Pair("plan", "3 runs, 1 of them reused")));
}

}  // namespace
}  // namespace lockstep
