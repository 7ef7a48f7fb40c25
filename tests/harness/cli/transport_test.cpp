// Collectives of real ranks over what a config asks for, with the host in the place of GPUs: who certifies them, and by what.

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;
using Variables = std::vector<std::pair<std::string, std::string>>;

const char* const kConfig = R"(name: carried
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
  Carried() { write_text(folder_ / "carried.yaml", kConfig); }

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

}  // namespace
}  // namespace lockstep
