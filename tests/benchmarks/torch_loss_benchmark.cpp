// What tiles cost and save: peak memory and time of the block of energies, forward and backward, in two
// passes of tiles against the whole block at once. Rows stay at 4; candidates grow.
//
// `peak_KiB` is what the block's forward and backward hold at once beyond what was there before (encoded
// rows, candidates and parameters), counted by the allocator; `full_peak_KiB` the same without tiles.
// `results_KiB` is the part that any algorithm holds: energies, softmax and the candidates' gradient,
// measured as the peak of the same block with an energy that is one product and keeps nothing. `head_KiB` is
// the rest, what tiles bound: it follows the tile, not N. `cost` is the time over that of the whole block,
// measured in turns.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <vector>

#include "harness/trainers/comm/ledger.h"
#include "losses/block.h"
#include "losses/infonce.h"
#include "scenarios/energy/model.h"

namespace lockstep {
namespace {

constexpr int64_t kRows = 4;
constexpr std::size_t kHeader = 64;  // keeps the alignment of what follows it

/// Counts bytes in use and their peak.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* base = nullptr;
    if (posix_memalign(&base, kHeader, bytes + kHeader) != 0) {
      throw std::bad_alloc();
    }
    std::memcpy(base, &bytes, sizeof(bytes));
    used_ += bytes;
    peak_ = std::max<std::size_t>(peak_, used_);
    void* data = static_cast<char*>(base) + kHeader;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  static void begin() {
    peak_ = used_.load();
    start_ = used_;
  }
  static std::size_t peak_since_begin() { return peak_ - start_; }

 private:
  static void release(void* data) {
    void* base = static_cast<char*>(data) - kHeader;
    std::size_t bytes = 0;
    std::memcpy(&bytes, base, sizeof(bytes));
    used_ -= bytes;
    std::free(base);
  }
  static inline std::atomic<std::size_t> used_ = 0;
  static inline std::size_t peak_ = 0, start_ = 0;
};

CountingAllocator counting;

/// The trainer's model without dropout; `bare`: one product in place of its head.
class ModelEnergy : public EnergyFunction {
 public:
  explicit ModelEnergy(bool bare) : bare_(bare), model_({16, 6, 8, 32, 64}, 0.5, 1) {
    const at::Tensor context = at::arange(kRows * 16 * 6, at::kFloat).mul(0.37).sin().reshape({kRows, 16, 6});
    context_ = model_.encode_context(context, at::ones({kRows, 16}, at::kBool));
  }
  EncodedRows encode_context() override {
    return {{context_.steps_BSD, context_.summary_B1D, context_.mask_BS}};
  }
  at::Tensor encode_action(const at::Tensor& action_NA) override { return model_.encode_action(action_NA); }
  at::Tensor energies(const EncodedRows& rows, const at::Tensor& action_ND, std::span<const int64_t>,
                      int64_t) override {
    const EncodedContext context{rows.tensors[0], rows.tensors[1], rows.tensors[2]};
    if (bare_) {
      return at::matmul(context.summary_B1D.squeeze(1), action_ND.t());
    }
    return (replay_ ? *replay_ : model_).head(context, action_ND, {});
  }
  at::Tensor own_energies(const EncodedRows&, const at::Tensor&, int64_t) override { return {}; }
  std::vector<at::Tensor> head_parameters() override { return model_.parameters_of(ModelPart::head); }
  void begin_replay(std::vector<at::Tensor> parameters) override {
    replay_.emplace(model_.with_parameters(ModelPart::head, parameters));
  }
  void end_replay() override { replay_.reset(); }
  at::Tensor temperature() override { return model_.temperature(); }

 private:
  bool bare_;
  EnergyModel model_;
  EncodedContext context_;
  std::optional<EnergyModel> replay_;
};

struct Cost {
  double seconds = 0;
  double peak_bytes = 0;
};

/// One forward and backward pass over the block.
Cost block_cost(int64_t candidates, int64_t tile_columns, bool bare = false) {
  const auto model = std::make_shared<ModelEnergy>(bare);
  const std::unique_ptr<Comm> comm = make_solo_comm();
  LossInput input{.comm = *comm, .model = *model};
  input.options.tile_columns = tile_columns;
  std::vector<int64_t> ids(static_cast<std::size_t>(candidates));
  std::iota(ids.begin(), ids.end(), 0);
  const at::Tensor raw = at::arange(candidates * 48, at::kFloat).mul(0.13).sin().reshape({candidates, 48});
  const at::Tensor action_ND = model->encode_action(raw).detach().requires_grad_(true);
  EncodedRows rows = model->encode_context();
  for (at::Tensor& tensor : rows.tensors) {
    tensor = tensor.is_floating_point() ? tensor.detach().requires_grad_(true) : tensor;
  }
  const at::Tensor target = at::arange(kRows, at::kLong);
  CountingAllocator::begin();
  const auto began = std::chrono::steady_clock::now();
  infonce_row_losses(block_energies(input, rows, action_ND, ids), model->temperature(), target, {})
      .sum()
      .backward();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return {took.count(), static_cast<double>(CountingAllocator::peak_since_begin())};
}

void tiles(benchmark::State& state) {
  const int64_t candidates = state.range(0);
  const int64_t tile = state.range(1);
  std::vector<double> ratios;
  Cost tiled, whole;
  block_cost(candidates, tile);  // first touches
  for ([[maybe_unused]] auto _ : state) {
    whole = block_cost(candidates, candidates);
    tiled = block_cost(candidates, tile);
    ratios.push_back(tiled.seconds / whole.seconds);
    state.SetIterationTime(tiled.seconds);
  }
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2),
                   ratios.end());
  const double results = block_cost(candidates, tile, true).peak_bytes;
  state.counters["peak_KiB"] = tiled.peak_bytes / 1024;
  state.counters["full_peak_KiB"] = whole.peak_bytes / 1024;
  state.counters["results_KiB"] = results / 1024;
  state.counters["head_KiB"] = (tiled.peak_bytes - results) / 1024;
  state.counters["cost"] = ratios[ratios.size() / 2];
}

BENCHMARK(tiles)
    ->Name("EnergyTiles")
    ->ArgNames({"candidates", "tile"})
    ->ArgsProduct({{24, 384, 6144}, {24, 96}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(15);

const bool allocator_set = [] {
  c10::SetCPUAllocator(&counting, 100);
  return true;
}();

}  // namespace
}  // namespace lockstep
