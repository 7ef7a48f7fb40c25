// The header of probe/cpp writes what docs/trace.md says: the hashes of vectors.json, and the bytes of lockstep's own writer.

#include "probe/cpp/lockstep_probe.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "harness/base/json.h"
#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/writer.h"

namespace {

namespace fs = std::filesystem;
namespace detail = lockstep_probe::detail;

class ProbeHeader : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "probe_header.XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    for (const char* name : kNames) unsetenv(name);
  }
  void TearDown() override {
    for (const char* name : kNames) unsetenv(name);
    fs::remove_all(folder_);
  }
  static constexpr const char* kNames[] = {"LOCKSTEP_TRACE", "LOCKSTEP_LEVEL", "LOCKSTEP_SNAPSHOTS", "LOCKSTEP_EVERY", "LOCKSTEP_LED_BY"};
  fs::path folder_;
};

std::string bytes_in(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Without the prefix and the header's frame, which names the writer.
std::string steps_in(const fs::path& path) {
  const std::string bytes = bytes_in(path);
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + 12, sizeof length);
  return bytes.substr(12 + 16 + length);
}

TEST_F(ProbeHeader, HasTheHashesOfThePage) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/tests/conformance/vectors.json");
  const nlohmann::json vectors = nlohmann::json::parse(file);
  ASSERT_GE(vectors.size(), 16u);
  constexpr const char* kTypes[] = {"float32", "float64", "int64", "bfloat16", "bool", "float16", "int32"};
  for (const nlohmann::json& each : vectors) {
    const auto hex = each["bytes"].get<std::string>(), wanted = each["hash"].get<std::string>();
    std::vector<uint8_t> bytes(hex.size() / 2);
    for (std::size_t i = 0; i < bytes.size(); ++i) std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, bytes[i], 16);
    const auto type = std::ranges::find(kTypes, each["dtype"].get<std::string>()) - std::begin(kTypes);
    const auto shape = each["shape"].get<std::vector<int64_t>>(), positions = each.value("positions", std::vector<int64_t>{});
    EXPECT_EQ(lockstep::hex16(detail::tensor_hash(static_cast<detail::DType>(type), bytes.data(), shape, positions)), wanted) << each.dump();
  }
}

at::Tensor some(at::ScalarType type, c10::IntArrayRef shape, uint64_t seed) {
  at::Generator gen = at::detail::createCPUGenerator(seed);
  return (at::randn(shape, gen) * 100).to(type);
}

TEST_F(ProbeHeader, ComputesTheStatisticsOfLockstep) {
  std::vector<at::Tensor> tensors;
  for (const at::ScalarType type : detail::Host::kTypes) {
    for (const int64_t rows : {0, 1, 3, 1025}) tensors.push_back(some(type, {rows, 5}, static_cast<uint64_t>(rows)));
    tensors.push_back(some(type, {}, 5));
  }
  at::Tensor odd = some(at::kFloat, {3000}, 8);
  odd[1500] = std::numeric_limits<float>::infinity();
  odd[2999] = std::numeric_limits<float>::quiet_NaN();
  tensors.push_back(odd);
  tensors.push_back(at::full({40}, 1e200, at::kDouble));
  tensors.push_back(at::full({40}, 1e-200, at::kDouble));
  tensors.push_back(at::full({2}, std::numeric_limits<float>::quiet_NaN()));
  for (const at::Tensor& each : tensors) {
    const detail::Host host(each);
    const auto shape = host.tensor.sizes().vec();
    const lockstep::TensorStats expected =
        lockstep::tensor_stats({host.tensor.const_data_ptr(), static_cast<lockstep::DType>(host.dtype), {shape.data(), shape.size()}, {}});
    const detail::Stats stats = host.stats();
    EXPECT_EQ((lockstep::TensorStats{stats.hash, stats.norm, stats.min, stats.max, stats.nonfinite}), expected) << each.dtype() << each.sizes();
    EXPECT_EQ(host.hash(), expected.hash);
  }
}

/// One linear layer with gradients; AdamW.
struct Trainer {
  Trainer() {
    at::Generator gen = at::detail::createCPUGenerator(3);
    const at::NoGradGuard no_gradient;
    for (at::Tensor& each : model->parameters()) each.normal_(0, 1, gen);
  }
  void backward() {
    optimizer.zero_grad();
    model(at::ones({2, 3})).sum().backward();
  }
  torch::nn::Linear model{3, 2};
  torch::optim::AdamW optimizer{model->parameters(), torch::optim::AdamWOptions(0.25)};
};

TEST_F(ProbeHeader, WritesTheBytesOfLockstepsWriter) {
  for (const auto& [level, rank] : {std::pair(lockstep::TraceLevel::hash, 0), std::pair(lockstep::TraceLevel::hash, 1), std::pair(lockstep::TraceLevel::full, 2)}) {
    const fs::path probed = folder_ / std::to_string(rank) / "probe", ours = folder_ / std::to_string(rank) / "ours.trace";
    setenv("LOCKSTEP_TRACE", probed.c_str(), 1);
    setenv("LOCKSTEP_LEVEL", level == lockstep::TraceLevel::full ? "full" : "hash", 1);
    setenv("LOCKSTEP_SNAPSHOTS", "1", 1);
    Trainer trainer;
    lockstep_probe::Probe probe(*trainer.model, trainer.optimizer, {.rank = rank, .world_size = 3});
    ASSERT_TRUE(probe.enabled());
    lockstep::TraceHeader header;
    header.rank = rank;
    header.world_size = 3;
    header.level = level;
    fs::create_directories(ours.parent_path());
    lockstep::TraceWriter writer(ours.string(), header);

    using lockstep::Phase;
    using lockstep::Sharing;
    auto keep = lockstep::Keep::by_level;
    const auto all = [&](Phase phase, bool gradients, Sharing sharing) {
      for (const auto& each : trainer.model->named_parameters()) {
        const detail::Host host(gradients ? each.value().grad() : each.value());
        const auto shape = host.tensor.sizes().vec();
        writer.tensor(phase, each.key(), {host.tensor.const_data_ptr(), lockstep::DType::float32, shape, {}}, sharing, {}, keep);
      }
    };
    writer.begin_step(-1);
    all(Phase::parameters, false, Sharing::replicated);
    writer.end_step();
    for (int64_t step = 0; step < 2; ++step) {
      const std::vector<int64_t> ids = {-5 + step, 300};
      const at::mt19937_data_pod drawn = at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator())->engine().data();
      const uint64_t stream = XXH3_64bits_withSeed(drawn.state_.data(), sizeof drawn.state_, drawn.next_);
      probe.rows(ids);
      writer.begin_step(step);
      keep = step == 1 ? lockstep::Keep::whole : lockstep::Keep::by_level;
      if (step == 1) {
        all(Phase::snapshot, false, Sharing::replicated);
        for (const auto& each : trainer.model->named_parameters()) {
          const auto& state = dynamic_cast<torch::optim::AdamWParamState&>(*trainer.optimizer.state()[each.value().unsafeGetTensorImpl()]);
          const detail::Host first(state.exp_avg()), second(state.exp_avg_sq());
          const auto shape = first.tensor.sizes().vec();
          writer.tensor(Phase::snapshot, "first_moment/" + each.key(), {first.tensor.const_data_ptr(), lockstep::DType::float32, shape, {}}, Sharing::replicated, {}, keep);
          writer.tensor(Phase::snapshot, "second_moment/" + each.key(), {second.tensor.const_data_ptr(), lockstep::DType::float32, shape, {}}, Sharing::replicated, {}, keep);
        }
        writer.scalar(Phase::snapshot, "updates", 1, Sharing::replicated);
      }
      trainer.backward();
      at::Generator gen = at::detail::getDefaultCPUGenerator();
      at::rand({1000 + step}, gen);  // one number of 32 bits each
      probe.local();
      all(Phase::local_gradients, true, Sharing::own);
      const at::Tensor flat = some(at::kFloat, {7}, 2);
      probe.collective("all_reduce", {.reduction = "sum", .group = "gradients", .tag = "flat"}, {flat}, {flat}, [&] { flat.mul_(2); });
      lockstep::CollectiveRecord call = {.op = "all_reduce", .reduction = "sum", .group = "gradients", .tag = "flat", .root = -1, .dtype = lockstep::DType::float32, .shape = {7}};
      call.hash_in = detail::Host(some(at::kFloat, {7}, 2)).hash();
      call.hash_out = detail::Host(flat).hash();
      writer.collective(call);
      probe.applied();
      all(Phase::applied_gradients, true, Sharing::replicated);
      trainer.optimizer.step();
      probe.step(0.5);
      writer.scalar(Phase::loss, "loss", 0.5, Sharing::own);
      writer.samples(ids);
      writer.random("process/torch", stream, static_cast<uint64_t>(1000 + step));
      writer.scalar(Phase::control, "learning_rate", 0.25, Sharing::replicated);
      all(Phase::parameters, false, Sharing::replicated);
      if (level == lockstep::TraceLevel::full || step == 1) {
        for (const auto& each : trainer.model->named_parameters()) {
          const auto& state = dynamic_cast<torch::optim::AdamWParamState&>(*trainer.optimizer.state()[each.value().unsafeGetTensorImpl()]);
          for (const auto& [name, moment] : {std::pair("first_moment/", state.exp_avg()), std::pair("second_moment/", state.exp_avg_sq())}) {
            const auto shape = moment.sizes().vec();
            writer.tensor(Phase::optimizer_state, name + each.key(), {moment.const_data_ptr(), lockstep::DType::float32, shape, {}}, Sharing::replicated, {}, keep);
          }
        }
        writer.scalar(Phase::optimizer_state, "updates", static_cast<double>(step + 1), Sharing::replicated);
      }
      writer.end_step();
    }
    probe.finish();
    writer.finish();
    EXPECT_TRUE(steps_in(probed / ("rank-" + std::to_string(rank) + ".trace")) == steps_in(ours)) << rank;
  }
}

TEST_F(ProbeHeader, DoesNothingWithoutAFolderAndAtLevelOff) {
  Trainer trainer;
  lockstep_probe::Probe without(*trainer.model, trainer.optimizer, {});
  EXPECT_FALSE(without.enabled());
  setenv("LOCKSTEP_TRACE", folder_.c_str(), 1);
  setenv("LOCKSTEP_LEVEL", "off", 1);
  lockstep_probe::Probe off(*trainer.model, trainer.optimizer, {});
  trainer.backward();
  off.rows({1, 2});
  int runs = 0;
  off.collective("barrier", {}, {}, {}, [&] { ++runs; });
  off.step(at::zeros({}));
  off.metric("m", 1);
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(ProbeHeader, SaysOnceWhatItCannotDoAndIsThenOff) {
  for (const auto& [name, value, said] : {std::tuple("LOCKSTEP_TRACE", "/proc/nowhere", "/proc/nowhere"), std::tuple("LOCKSTEP_TRACE", "traces", "absolute folder"),
                                          std::tuple("LOCKSTEP_LEVEL", "loud", "off, hash, stats or full, not loud"), std::tuple("LOCKSTEP_EVERY", "0", "1 or more"),
                                          std::tuple("LOCKSTEP_SNAPSHOTS", "1,x", "whole numbers, not x")}) {
    setenv("LOCKSTEP_TRACE", folder_.c_str(), 1);
    setenv(name, value, 1);
    Trainer trainer;
    testing::internal::CaptureStderr();
    lockstep_probe::Probe probe(*trainer.model, trainer.optimizer, {});
    probe.rows({1});
    probe.step(1.0);
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_FALSE(probe.enabled()) << name;
    EXPECT_NE(text.find(said), std::string::npos) << text;
    EXPECT_NE(text.find("training goes on"), std::string::npos) << text;
    EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
    unsetenv(name);
  }
}

TEST_F(ProbeHeader, GoesOnWhenTheDiskIsFull) {
  fs::create_symlink("/dev/full", folder_ / "rank-0.trace");
  setenv("LOCKSTEP_TRACE", folder_.c_str(), 1);
  Trainer trainer;
  testing::internal::CaptureStderr();
  lockstep_probe::Probe probe(*trainer.model, trainer.optimizer, {});
  probe.rows({1});
  EXPECT_FALSE(probe.enabled());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("No space left on device"), std::string::npos);
}

TEST_F(ProbeHeader, RecordsEachNthStepAndTheSnapshots) {
  setenv("LOCKSTEP_TRACE", folder_.c_str(), 1);
  setenv("LOCKSTEP_EVERY", "3", 1);
  setenv("LOCKSTEP_SNAPSHOTS", "4", 1);
  Trainer trainer;
  {
    lockstep_probe::Probe probe(*trainer.model, trainer.optimizer, {});
    for (int64_t step = 0; step < 7; ++step) {
      probe.rows({step});
      trainer.backward();
      trainer.optimizer.step();
      probe.step(1.0);
      probe.metric("m", 2);
    }
  }
  lockstep::TraceReader reader((folder_ / "rank-0.trace").string());
  std::vector<int64_t> steps;
  while (const auto step = reader.next()) {
    steps.push_back(step->step);
    EXPECT_EQ(std::ranges::count_if(step->records, [](const auto& each) { return each.phase == lockstep::Phase::evaluation; }), step->step >= 0 ? 1 : 0);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{-1, 0, 3, 4, 6}));
}

}  // namespace
