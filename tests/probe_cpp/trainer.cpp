// A LibTorch trainer with a loop of its own, traced by probe/cpp/lockstep_probe.h alone: one process with 24 rows, or ranks that add their
// gradients over Gloo and divide by hand.
//
//   trainer RANK WORLD_SIZE STORE [FAULT]     sum: nobody divides; rate: rank 1 takes another learning rate; throw: step 2 throws

#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdio>
#include <string>
#include <vector>

#include "probe/cpp/lockstep_probe.h"

namespace {

constexpr int64_t kBatch = 24, kSamples = 96, kSteps = 6, kFeatures = 7;

struct Model : torch::nn::Module {
  Model() {
    first = register_module("first", torch::nn::Linear(kFeatures, 16));
    second = register_module("second", torch::nn::Linear(16, 3));
    steps = register_buffer("steps", torch::zeros({}, at::kLong));
    at::Generator gen = at::detail::createCPUGenerator(7);
    const at::NoGradGuard no_gradient;
    for (at::Tensor& each : parameters()) each.normal_(0, 0.3, gen);
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  at::Tensor steps;
};

at::Tensor row_of(int64_t id) {
  at::Generator gen = at::detail::createCPUGenerator(1000 + static_cast<uint64_t>(id));
  return at::randn({kFeatures}, gen);
}

std::vector<int64_t> batch_of(int64_t step) {
  at::Generator gen = at::detail::createCPUGenerator(step / (kSamples / kBatch));
  const at::Tensor order = at::randperm(kSamples, gen);
  const int64_t begin = step % (kSamples / kBatch) * kBatch;
  const auto* ids = order.const_data_ptr<int64_t>();
  return {ids + begin, ids + begin + kBatch};
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return 2;
  const int rank = std::stoi(words[1]), world_size = std::stoi(words[2]);
  const std::string fault = count > 4 ? words[4] : "";
  at::set_num_threads(1);

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  if (world_size > 1) {
    auto options = c10d::ProcessGroupGloo::Options::create();
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    group = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::FileStore>(words[3], world_size), rank, world_size, options);
  }

  Model model;
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.01));
  lockstep_probe::Options facts = {.rank = rank, .world_size = world_size, .clip_norm = 0.5, .global_batch = kBatch};
  facts.run = "tests/probe_cpp";
  lockstep_probe::Probe probe(model, optimizer, facts);

  int64_t step = 0;
  const auto train_step = [&](const std::vector<int64_t>& ids) {
    probe.rows(ids);
    std::vector<at::Tensor> rows, targets;
    for (const int64_t id : ids) {
      rows.push_back(row_of(id));
      targets.push_back(at::full({}, id % 3, at::kLong));
    }
    const at::Tensor x = at::stack(rows).to(probe.dtype()), y = at::stack(targets);
    probe.inputs(x);
    probe.labels(y);
    optimizer.zero_grad();
    const at::Tensor logits = model.second(at::tanh(model.first(x)));
    const at::Tensor losses = torch::nn::functional::cross_entropy(logits, y, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    const at::Tensor loss = losses.mean();
    probe.row_losses(losses, 1.0 / static_cast<double>(ids.size()));
    loss.backward();
    if (fault == "throw" && step == 2) throw std::runtime_error("planted");
    probe.local();
    if (group) {
      std::vector<at::Tensor> gradients;
      for (const at::Tensor& each : model.parameters()) gradients.push_back(each.grad().flatten());
      std::vector<at::Tensor> flat = {at::cat(gradients)};
      probe.collective("all_reduce", {.reduction = "sum", .group = "gradients", .tag = "flat"}, flat, flat, [&] { group->allreduce(flat)->wait(); });
      if (fault != "sum") flat.front().div_(world_size);
      int64_t at = 0;
      for (const at::Tensor& each : model.parameters()) {
        each.grad().copy_(flat.front().slice(0, at, at + each.numel()).view_as(each));
        at += each.numel();
      }
    }
    probe.reduced();
    torch::nn::utils::clip_grad_norm_(model.parameters(), 0.5);
    probe.applied();
    optimizer.step();
    model.steps.add_(1);
    probe.step(loss);
    probe.metric("weight", model.second->weight.detach().abs().sum().item().toDouble());
  };
  for (; step < kSteps; ++step) {
    optimizer.param_groups()[0].options().set_lr(fault == "rate" && rank == 1 && step >= 2 ? 0.015 : 0.01);
    const std::vector<int64_t> batch = batch_of(step);
    std::vector<int64_t> ids;
    for (std::size_t i = static_cast<std::size_t>(rank); i < batch.size(); i += static_cast<std::size_t>(world_size)) ids.push_back(batch[i]);
    try {
      train_step(ids);
    } catch (const std::runtime_error& error) {
      std::fprintf(stderr, "trainer: %s\n", error.what());
      return 1;
    }
  }
  std::printf("sum of parameters %.17g\n", model.first->weight.detach().to(at::kDouble).sum().item().toDouble());
  return 0;
}
