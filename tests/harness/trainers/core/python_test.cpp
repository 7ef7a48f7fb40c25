// The bridge to what users run: Python's torch.optim and DistributedDataParallel give the bits that lockstep
// gives.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/judge/trace/reader.h"
#include "harness/trainers/core/task.h"
#include "scenarios/energy/spec.h"
#include "tests/support/mini_run.h"
#include "tests/support/temp_folder.h"
#include "tests/support/whole.h"

namespace lockstep {
namespace {

constexpr const char* kPython = LOCKSTEP_PYTHON;

#define NEEDS_PYTHON()  \
  if (*kPython == '\0') \
  GTEST_SKIP() << "no Python that has this LibTorch's torch package: set LOCKSTEP_PYTHON"

/// Output and exit status of a script under tests/bridge.
std::pair<std::string, int> python(const std::string& script, const std::string& argument) {
  const std::string command = std::string("OMP_NUM_THREADS=1 ") + kPython +
                              " -W ignore " LOCKSTEP_SOURCE_DIR "/tests/bridge/" + script + " '" + argument +
                              "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer{};
  while (const std::size_t got = fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.append(buffer.data(), got);
  }
  return {output, pclose(pipe)};
}

RunConfig setting(const std::string& name) {
  RunConfig config;
  const bool sgd = name.starts_with("sgd");
  config.optimizer = sgd ? OptimizerKind::sgd : name == "adamw" ? OptimizerKind::adamw : OptimizerKind::adam;
  config.lr = sgd ? 0.05 : 1e-3;
  config.momentum = name == "sgd_momentum_decay" ? 0.9 : 0.0;
  config.weight_decay = name.find("decay") != std::string::npos || name == "adamw" ? 0.01 : 0.0;
  if (name == "adam_decay") {
    config.beta1 = 0.8;
    config.beta2 = 0.95;
    config.eps = 1e-6;
  }
  config.clip_norm = name == "adam_clip" ? 0.7 : 0.0;
  return config;
}

TEST(Optimizer, EqualsPythonBitForBit) {
  NEEDS_PYTHON();
  const auto [output, status] = python("optimizers.py", "");
  ASSERT_EQ(status, 0) << output;
  std::istringstream lines(output);
  std::string name;
  std::map<std::string, std::pair<ParameterList, std::unique_ptr<Optimizer>>> runs;
  int compared = 0;
  for (int t = 0; lines >> name >> t;) {
    auto& [parameters, optimizer] = runs[name];
    const RunConfig config = setting(name);
    if (!optimizer) {
      parameters.add("p", ((at::arange(67) * 29).remainder(97) - 48).to(at::kFloat) / 32);
      optimizer = std::make_unique<Optimizer>(config, parameters);
    }
    parameters.tensors[0].mutable_grad() =
        ((at::arange(67) * 37 + t * 11).remainder(101) - 50).to(at::kFloat) / 64;
    if (config.clip_norm > 0) {
      clip_gradients(parameters.tensors, total_gradient_norm(parameters.tensors), config.clip_norm);
    }
    optimizer->step(config.lr);
    const at::Tensor now = parameters.tensors[0].detach().contiguous();
    for (int64_t i = 0; i < 67; ++i) {
      std::string bits;
      lines >> bits;
      uint32_t mine = 0;
      std::memcpy(&mine, now.const_data_ptr<float>() + i, 4);
      ASSERT_EQ(mine, std::stoul(bits, nullptr, 16)) << name << ", update " << t << ", element " << i;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 6 * 25 * 67);
}

template <typename T>
void write_raw(const std::string& path, const std::vector<T>& values) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

struct Bridge {
  int world_size;
  Negatives negatives;
  OptimizerKind optimizer;
  double clip_norm;
  RankSeed rank_seed;
  int64_t bucket_cap_bytes;
};

class DistributedDataParallel : public testing::TestWithParam<Bridge> {};

TEST_P(DistributedDataParallel, GivesTheBitsOfEmulatedRanksOverTwentySteps) {
  NEEDS_PYTHON();
  const Bridge& bridge = GetParam();
  const TempFolder folder;
  RunConfig config = mini_config();
  config.layout = {bridge.world_size, 2};
  config.steps = 20;
  energy(config).negatives = bridge.negatives;
  config.optimizer = bridge.optimizer;
  config.lr = bridge.optimizer == OptimizerKind::sgd ? 0.05 : 1e-3;
  config.clip_norm = bridge.clip_norm;
  config.rank_seed = bridge.rank_seed;
  config.bucket_cap_bytes = bridge.bucket_cap_bytes;
  config.trace = TraceLevel::full;
  const std::string run = mini_run(folder.path(), "emulated", config);

  std::ofstream parameters(folder / "parameters", std::ios::binary);
  for (const StepRecords& step : read_trace(run + "/rank-0.trace").steps) {
    for (const Record& record : step.records) {
      if (step.step >= 0 && record.phase == Phase::parameters) {
        parameters.write(reinterpret_cast<const char*>(record.payload.data()),
                         static_cast<std::streamsize>(record.payload.size()));
      }
    }
  }
  parameters.close();
  const Dataset dataset = load_dataset(pair_config(config));
  write_raw(folder / "contexts", dataset.train.contexts);
  write_raw(folder / "actions", dataset.train.actions);
  write_raw(folder / "masks", dataset.train.context_mask);
  const nlohmann::json settings{{"world_size", bridge.world_size},
                                {"rows_per_rank", 2},
                                {"steps", config.steps},
                                {"seed", config.seed},
                                {"channels", dataset.train.channels},
                                {"context_steps", energy(config).data.context_steps},
                                {"action_steps", energy(config).data.action_steps},
                                {"temperature", energy(config).temperature},
                                {"dropout", energy(config).dropout},
                                {"context_noise", energy(config).context_noise},
                                {"negatives", bridge.negatives == Negatives::global ? "global" : "local"},
                                {"optimizer", bridge.optimizer == OptimizerKind::adam ? "adam" : "sgd"},
                                {"lr", config.lr},
                                {"clip_norm", config.clip_norm},
                                {"bucket_cap_bytes", config.bucket_cap_bytes},
                                {"rank_seed", bridge.rank_seed == RankSeed::keyed ? "keyed" : "plus_rank"},
                                {"contexts", folder / "contexts"},
                                {"actions", folder / "actions"},
                                {"masks", folder / "masks"},
                                {"parameters", folder / "parameters"}};
  const auto [output, status] = python("ddp_bridge.py", settings.dump());
  EXPECT_EQ(status, 0) << output;
  EXPECT_NE(output.find("identical over 20 steps"), std::string::npos) << output;
}

std::vector<Bridge> bridges() {
  std::vector<Bridge> all{{3, Negatives::global, OptimizerKind::adam, 0.5, RankSeed::keyed, 0},
                          {3, Negatives::local, OptimizerKind::sgd, 0.0, RankSeed::plus_rank, 32768}};
  if (support::whole()) all.push_back({5, Negatives::global, OptimizerKind::adam, 0.0, RankSeed::keyed, 16384});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Bridge, DistributedDataParallel, testing::ValuesIn(bridges()));

}  // namespace
}  // namespace lockstep
