// Which rows of a parameter a rank owns, and that all ranks' rows make the whole again.

#include "harness/trainers/core/shards.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "harness/trainers/comm/emulated.h"

namespace lockstep {
namespace {

ParameterList some_parameters() {
  ParameterList parameters;
  parameters.add("a.weight", at::arange(14, at::kFloat).reshape({7, 2}));
  parameters.add("a.bias", at::arange(4, at::kFloat));
  parameters.add("b.small", at::arange(2, at::kFloat));
  parameters.add("b.scalar", at::full({}, 5.0F));
  return parameters;
}

void on_ranks(int world, const std::function<void(Comm&)>& body) {
  EmulatedWorld emulated(world, 20);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Comm> comm = emulated.comm(rank);
      body(*comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Shards, CutRowsAsTorchChunkDoesAndKeepSmallTensorsWhole) {
  const ParameterList parameters = some_parameters();
  const std::vector<int64_t> firsts{0, 3, 6}, rows{3, 3, 1}, bias_rows{2, 2, 0};
  for (int rank = 0; rank < 3; ++rank) {
    const Shards shards(parameters, rank, 3);
    const auto at = static_cast<std::size_t>(rank);
    EXPECT_TRUE(shards.is_sharded(0));
    EXPECT_EQ(shards.placement(0).whole, (std::vector<int64_t>{7, 2}));
    EXPECT_EQ(shards.placement(0).offset, (std::vector<int64_t>{firsts[at], 0}));
    EXPECT_EQ(shards.own(0, parameters.tensors[0]).size(0), rows[at]);
    EXPECT_EQ(shards.own(1, parameters.tensors[1]).size(0), bias_rows[at]) << "the last rank may have none";
    EXPECT_FALSE(shards.is_sharded(2)) << "two rows are too few for three ranks";
    EXPECT_FALSE(shards.is_sharded(3));
    EXPECT_EQ(shards.own(2, parameters.tensors[2]).size(0), 2);
  }
  EXPECT_FALSE(Shards(parameters, 0, 1).is_sharded(0)) << "one rank has everything";
}

TEST(Shards, WhatAllRanksOwnIsTheWholeAgain) {
  on_ranks(3, [](Comm& comm) {
    const ParameterList parameters = some_parameters();
    const Shards shards(parameters, comm.rank(), comm.world_size());
    std::vector<at::Tensor> parts;
    for (std::size_t i = 0; i < shards.size(); ++i) parts.push_back(shards.own(i, parameters.tensors[i]).detach().clone());
    const std::vector<at::Tensor> wholes = shards.gathered(comm, parts, "test");
    for (std::size_t i = 0; i < wholes.size(); ++i) EXPECT_TRUE(at::equal(wholes[i], parameters.tensors[i].detach()));
  });
}

TEST(Shards, DropWhatOthersOwn) {
  const ParameterList parameters = some_parameters();
  const Shards shards(parameters, 1, 3);
  const at::Tensor gradient = at::ones({7, 2});
  shards.drop_others(0, gradient);
  EXPECT_EQ(gradient.sum().item<float>(), 6);
  EXPECT_EQ(shards.own(0, gradient).sum().item<float>(), 6);
  const at::Tensor small = at::ones({2});
  shards.drop_others(2, small);
  EXPECT_EQ(small.sum().item<float>(), 2);
}

TEST(Shards, TheirNormIsThatOfTheWholeGradient) {
  on_ranks(3, [](Comm& comm) {
    const ParameterList parameters = some_parameters();
    const Shards shards(parameters, comm.rank(), comm.world_size());
    std::vector<at::Tensor> parts;
    double squares = 0;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      parts.push_back(shards.own(i, parameters.tensors[i]).detach());
      squares += parameters.tensors[i].detach().to(at::kDouble).square().sum().item<double>();
    }
    const SquaredNorms norms = shards.squared_norms(comm, parts);
    EXPECT_EQ(norms.all_shards + norms.replicated, squares);
    EXPECT_EQ(norms.replicated, 1.0 + 25.0);
    EXPECT_LT(norms.own_shards, norms.all_shards);
  });
}

}  // namespace
}  // namespace lockstep
