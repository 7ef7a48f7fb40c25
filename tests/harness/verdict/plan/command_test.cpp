// A matrix whose runs are a command: keys that users name, what is refused, which run reads which, and what decides that a run is the same.

#include <gmock/gmock.h>

#include <algorithm>

#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/plan.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kCommand =
    "# Is it so?\nname: tiny\ntrainer: command\ncommand: torchrun --nproc-per-node {ranks} train.py --batch {rows} --seed {seed} --lr {rate} ${HOME}\n"
    "args: {rate: 0.1}\nsteps: 30\nreference: {layout: 1x24}\n";

TEST(CommandMatrix, TakesAxesOfVariablesAndArguments) {
  const Matrix matrix = parse(kCommand + "axes: {layout: [3x8], env.FSDP: [0, true], args.rate: [0.1, 0.2]}\n");
  EXPECT_THAT(names_of(matrix), ElementsAre("3x8 env.FSDP=0 args.rate=0.1", "3x8 env.FSDP=0 args.rate=0.2", "3x8 env.FSDP=true args.rate=0.1",
                                            "3x8 env.FSDP=true args.rate=0.2"));
  const RunConfig& last = matrix.cells.back().config;
  const CommandLine line = spec_of(last).command(last, "/out/runs/x");
  EXPECT_THAT(line.shell, HasSubstr("--nproc-per-node 3 train.py --batch 8 --seed 0 --lr 0.2 ${HOME}"));
  EXPECT_THAT(line.variables, ElementsAre(std::pair("FSDP", "true")));
  EXPECT_TRUE(line.starts_ranks);
  EXPECT_FALSE(spec_of(last).command(parse(kCommand + "axes: {layout: [3x8]}\n", set({"command=train.py --lr {rate}"})).cells.front().config, "").starts_ranks);
}

TEST(CommandMatrix, HasRealRanksAndNoRunsThatOnlyOurTrainersHave) {
  const Plan plan = make_plan(parse(kCommand + "axes: {layout: [3x8]}\n"), "/nowhere", {});
  ASSERT_EQ(plan.runs.size(), 2U);
  EXPECT_EQ(plan.runs[1].config.backend, Backend::gloo);
  EXPECT_THAT(plan.runs[1].needs, IsEmpty());
}

TEST(CommandMatrix, RunsThatReplayWaitForTheirReferenceOfTheSameSeed) {
  const Plan plan = make_plan(parse(kCommand + "replay: true\nseeds: 0..1\nquestion: mechanism\naxes: {layout: [3x8]}\n"), "/nowhere", {});
  ASSERT_EQ(plan.runs.size(), 4U);
  for (const std::size_t seed : {0U, 1U}) {
    EXPECT_THAT(plan.runs[2 + seed].needs, ElementsAre(plan.runs[seed].id));
    const RunConfig& config = plan.runs[2 + seed].config;
    EXPECT_EQ(spec_of(config).command(config, "").against, plan.runs[seed].id);
    EXPECT_THAT(plan.runs[seed].config.snapshot_steps, ElementsAre(0, 1, 2, 5, 10, 20));
  }
}

TEST(CommandMatrix, RefusesAnUnknownPlaceholderByPlaceWithTheNearest) {
  EXPECT_THAT(problems_of(kCommand, set({"command=train.py --x {rnks} --lr {rate}"})), Contains(HasSubstr("unknown placeholder {rnks}; did you mean {ranks}?")));
  EXPECT_THAT(problems_of(kCommand + "env.LOCKSTEP_TRACE: x\n"), Contains(HasSubstr("m.yaml:8:1: cell '1x24': env.LOCKSTEP_TRACE is set by lockstep itself")));
}

TEST(CommandMatrix, RefusesWhatDescribesTrainingThatLockstepDoesItself) {
  for (const char* key : {"lr: 0.1", "optimizer: sgd", "checkpoint.every: 5", "mutant.name: grad_scale", "accumulation: 2", "trace: off"})
    EXPECT_THAT(problems_of(kCommand + "axes: {layout: [3x8]}\n" + key + "\n"), Not(IsEmpty())) << key;
  EXPECT_THAT(problems_of(kCommand + "axes: {layout: [3x8]}\nloss: hard\n"), ElementsAre(HasSubstr("loss is a key of trainer energy; this matrix trains command")));
  EXPECT_THAT(problems_of("name: x\nreference: {layout: 1x24}\nenv: {A: 1}\n"), Contains(HasSubstr("env.A is a key of trainer command; this matrix trains energy")));
  EXPECT_THAT(problems_of(kCommand + "axes: {layout: [3x8]}\nenv: {\"1A\": 1}\n"), Not(IsEmpty()));
}

TEST(CommandMatrix, IsTheSameWhereverItsFilesAre) {
  const Matrix here = parse(kCommand + "folder: /here\naxes: {layout: [3x8]}\n"), there = parse(kCommand + "folder: /there\naxes: {layout: [3x8]}\n");
  EXPECT_EQ(config_hash(here.cells[0].config), config_hash(there.cells[0].config));
  // A variable that another matrix names is no part of this one.
  const std::string before = canonical_json(here.cells[0].config);
  parse(kCommand + "axes: {layout: [3x8], env.SEEN_ELSEWHERE: [1, 2]}\n");
  EXPECT_EQ(canonical_json(here.cells[0].config), before);
  EXPECT_EQ(config_hash(run_config_from_json(before, "run.json")), config_hash(here.cells[0].config));
}

TEST(CommandSources, AreThoseBesideTheScriptWhateverElseIsThere) {
  const TemporaryFolder folder;
  for (const char* name : {"code/train.py", "code/model/net.py", "code/notes.txt", "code/.git/config.py", "code/env/pyvenv.cfg", "code/env/lib.py", "data.bin", "other.py"}) {
    std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
    write_text(folder / name, "1");
  }
  const auto hash = [&](const std::string& more = "") {
    const Matrix matrix = parse("name: x\ntrainer: command\ncommand: python code/train.py\nreference: {layout: 1x6}\naxes: {layout: [3x2]}\nfolder: " + folder.path() + "\n" + more);
    const RunConfig& config = matrix.cells[0].config;
    return spec_of(config).inspect_data(config).hash + " " + spec_of(config).data_words(config);
  };
  const std::string first = hash();
  EXPECT_THAT(first, HasSubstr("2 source files"));
  for (const char* name : {"code/notes.txt", "code/.git/config.py", "code/env/lib.py", "other.py"}) write_text(folder / name, "2");
  EXPECT_EQ(hash(), first);
  const std::string with_data = hash("files: \"*.bin\"\n");
  write_text(folder / "data.bin", "2");
  EXPECT_NE(hash("files: \"*.bin\"\n"), with_data);
  EXPECT_EQ(hash(), first);
  write_text(folder / "code/model/net.py", "2");
  EXPECT_NE(hash(), first);
  EXPECT_THROW(hash("files: none.txt\n"), ConfigError);
}

}  // namespace
}  // namespace lockstep
