#pragma once
// The records of one training step as the energy trainer writes them: what the size budget and the benchmarks
// are about.

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "harness/judge/trace/writer.h"

namespace lockstep::support {

/// 17 parameter tensors of about 20,000 floats in all; own energies and local gradients; reduced gradients
/// and parameters alike on all ranks; loss, gradient norm, 4 control values, 2 random streams, 6 collectives,
/// 3 sample ids.
class StepWriter {
 public:
  StepWriter(const std::string& path, const TraceHeader& header) : writer_(path, header), rank_(header.rank) {
    std::mt19937_64 generator(static_cast<uint64_t>(rank_) + 1);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < 17; ++i) {
      const int64_t rows = i % 2 == 0 ? 64 : 1, columns = i % 2 == 0 ? 34 : 64;
      names_.push_back("context_encoder.layer" + std::to_string(i) + ".weight");
      shapes_.push_back({rows, columns});
      values_.emplace_back(static_cast<std::size_t>(rows * columns));
      for (float& value : values_.back()) value = normal(generator);
    }
    energies_.resize(72, 0.5F);
  }

  void write(int64_t step) {
    writer_.begin_step(step);
    const std::vector<int64_t> ids = {(step * 24 + rank_) % 1404, (step * 24 + rank_ + 8) % 1404,
                                      (step * 24 + rank_ + 16) % 1404};
    writer_.samples(ids);
    writer_.random("context noise", 0x9e3779b97f4a7c15ULL * static_cast<uint64_t>(step + 1), 288);
    writer_.random("dropout in head", 0xd1b54a32d192ed03ULL * static_cast<uint64_t>(step + 1), 9216);
    for (const char* name : {"lr", "step", "epoch", "loss_scale"}) {
      writer_.scalar(Phase::control, name, 1e-3 * static_cast<double>(step), Sharing::replicated);
    }
    const std::vector<int64_t> energies_shape = {3, 24}, positions = {rank_, rank_ + 8, rank_ + 16};
    writer_.tensor(Phase::scores, "energies", {energies_.data(), DType::float32, energies_shape, positions},
                   Sharing::own, ids);
    writer_.scalar(Phase::loss, "loss", 3.1 / static_cast<double>(step + 1), Sharing::own);
    values_[0][0] += 1;
    tensors(Phase::local_gradients, Sharing::own);
    for (int i = 0; i < 6; ++i) {
      collective_.tag = "bucket " + std::to_string(i);
      collective_.hash_in = static_cast<uint64_t>(step) * 0x9e3779b97f4a7c15ULL;
      collective_.hash_out = ~collective_.hash_in;
      writer_.collective(collective_);
    }
    tensors(Phase::reduced_gradients, Sharing::replicated);
    writer_.scalar(Phase::gradient_norm, "gradient_norm", 0.7 / static_cast<double>(step + 1),
                   Sharing::replicated);
    tensors(Phase::parameters, Sharing::replicated);
    writer_.end_step();
  }

  void finish() { writer_.finish(); }

 private:
  void tensors(Phase phase, Sharing sharing) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      writer_.tensor(phase, names_[i], {values_[i].data(), DType::float32, shapes_[i], {}}, sharing);
    }
  }

  TraceWriter writer_;
  int64_t rank_;
  std::vector<std::string> names_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<std::vector<float>> values_;
  std::vector<float> energies_;
  CollectiveRecord collective_{"reduce_gradients", "mean",  "gradients", "", -1,
                               DType::float32,     {20000}, 0,           0};
};

}  // namespace lockstep::support
