#include "tests/support/certificate.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "harness/lib/data/sampler.h"
#include "harness/trainers/comm/emulated.h"
#include "harness/trainers/comm/ledger.h"
#include "scenarios/energy/spec.h"
#include "tests/support/ranks.h"

namespace lockstep::support {
namespace {

std::string group_of(const std::string& name) { return name.substr(0, name.find('.')); }

void set_parameters(Task& task, const std::vector<at::Tensor>& values) {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < values.size(); ++i) {
    task.parameters().tensors[i].detach().copy_(values[i]);
  }
}

std::map<std::string, at::Tensor> gradients_by_group(const ParameterList& parameters) {
  std::map<std::string, std::vector<at::Tensor>> parts;
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    const at::Tensor& parameter = parameters.tensors[i];
    const at::Tensor gradient =
        parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter.detach());
    parts[group_of(parameters.names[i])].push_back(gradient.detach().flatten().clone());
  }
  std::map<std::string, at::Tensor> groups;
  for (const auto& [name, tensors] : parts) {
    groups[name] = at::cat(tensors);
  }
  return groups;
}

void clear_gradients(Task& task) {
  for (at::Tensor& parameter : task.parameters().tensors) {
    parameter.mutable_grad() = at::Tensor();
  }
}

StepInput micro_step_of(const RunConfig& config, const StepSetting& setting, const std::vector<int64_t>& ids,
                        int64_t micro) {
  const auto all = static_cast<int64_t>(ids.size());
  const int64_t begin = micro * all / config.accumulation;
  const int64_t end = (micro + 1) * all / config.accumulation;
  return {setting.step, {ids.begin() + begin, ids.begin() + end}, ids, micro, 0, end - begin, {}};
}

}  // namespace

RunConfig small_config(int world_size, int rows_per_rank) {
  RunConfig config;
  config.data.source = DataSource::synthetic;
  config.data.series = 8;
  config.data.series_steps = 40;
  energy(config).data.holdout_series = 1;
  energy(config).data.min_context = 10;
  config.layout = {world_size, rows_per_rank};
  energy(config).model.width = 8;
  energy(config).model.hidden = 12;
  config.precision = Precision::float64;
  return config;
}

std::vector<RunConfig> partitioned(RunConfig config, std::initializer_list<int> worlds) {
  std::vector<RunConfig> all;
  const int batch = static_cast<int>(config.layout.global_batch());
  for (const int world : worlds) {
    config.layout = {world, batch / world};
    for (const RowPartition partition : {RowPartition::equal, RowPartition::unequal, RowPartition::one_empty}) {
      config.rows = partition;
      if (world > 1 || partition == RowPartition::equal) all.push_back(config);
    }
  }
  return all;
}

StepOutput Alone::forward(const std::vector<int64_t>& ids, int64_t step) {
  return task_->forward({step, ids, ids, 0, 0, static_cast<int64_t>(ids.size())});
}

at::Tensor Alone::gradient(const std::vector<int64_t>& ids, int64_t part) {
  clear_gradients(*task_);
  for (int64_t first = 0; first < static_cast<int64_t>(ids.size()); first += part) {
    task_->forward({4, ids, ids, 0, first, first + part}).loss.backward();
  }
  std::vector<at::Tensor> flat;
  for (const at::Tensor& parameter : task_->parameters().tensors) flat.push_back(parameter.grad().flatten());
  return at::cat(flat);
}

void expect_parameters(const ParameterList& found, const std::vector<ModelParameter>& expected) {
  ASSERT_EQ(found.names.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found.names[i], expected[i].name);
    EXPECT_EQ(found.tensors[i].sizes(), at::IntArrayRef(expected[i].shape)) << expected[i].name;
  }
}

StepGradients of_ranks(Scenario& scenario, const RunConfig& config, const StepSetting& setting) {
  const int world = config.layout.world_size;
  const std::vector<int> owner =
      owners_of_rows(static_cast<int64_t>(setting.ids.size()), world, config.rows, config.data.block);
  EmulatedWorld emulated(world, 20);
  std::vector<std::map<std::string, at::Tensor>> gradients(static_cast<std::size_t>(world));
  std::vector<StepOutput> outputs(static_cast<std::size_t>(world));
  std::vector<double> losses(static_cast<std::size_t>(world), 0.0);
  const std::vector<std::string> errors = on_threads(world, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    try {
      at::set_num_threads(1);
      const std::unique_ptr<Comm> comm = world == 1 ? make_solo_comm() : emulated.comm(rank);
      const std::unique_ptr<Task> task = scenario.make_task(config, *comm, nullptr);
      set_parameters(*task, setting.parameters);
      std::vector<int64_t> ids;
      for (std::size_t row = 0; row < owner.size(); ++row) {
        if (owner[row] == rank) ids.push_back(setting.ids[row]);
      }
      for (int64_t micro = 0; micro < config.accumulation; ++micro) {
        StepOutput output = task->forward(micro_step_of(config, setting, ids, micro));
        losses[at] += output.loss.item<double>();
        output.loss.backward();
        if (micro == 0) outputs[at] = std::move(output);
      }
      gradients[at] = gradients_by_group(task->parameters());
    } catch (const std::exception&) {
      emulated.abort("rank " + std::to_string(rank) + " has failed");
      throw;
    }
  });
  for (const std::string& error : errors) {
    if (!error.empty()) throw std::runtime_error(error);
  }
  StepGradients result;
  for (int rank = 0; rank < world; ++rank) {
    result.loss += losses[static_cast<std::size_t>(rank)] / world;
    for (const auto& [name, gradient] : gradients[static_cast<std::size_t>(rank)]) {
      at::Tensor& sum = result.by_group[name];
      sum = sum.defined() ? sum + gradient / world : gradient / world;
    }
  }
  result.outputs = std::move(outputs);
  return result;
}

namespace {

/// One process that computes what all ranks of it mean.
RunConfig reference_of(RunConfig config) {
  config.oracle_world = config.layout.world_size;
  config.layout = {1, config.layout.global_batch()};
  return config;
}

}  // namespace

StepGradients of_reference(Scenario& scenario, const RunConfig& config, const StepSetting& setting) {
  Alone one(scenario, reference_of(config));
  set_parameters(one.task(), setting.parameters);
  StepGradients result;
  result.outputs.push_back(one.forward(setting.ids, setting.step));
  const StepOutput& output = result.outputs.front();
  result.loss = output.loss.item<double>();
  output.loss.backward({}, /*retain_graph=*/true);
  result.by_group = gradients_by_group(one->parameters());
  for (int64_t row = 0; row < output.row_losses_B.numel(); ++row) {
    clear_gradients(one.task());
    (output.row_losses_B[row] * output.row_weight).backward({}, /*retain_graph=*/true);
    for (const auto& [name, gradient] : gradients_by_group(one->parameters())) {
      result.contributions[name] += gradient.norm().item<double>();
    }
  }
  return result;
}

std::vector<at::Tensor> trained(Scenario& scenario, const RunConfig& config, const std::vector<int64_t>& ids,
                                int steps) {
  Alone one(scenario, reference_of(config));
  for (int step = 0; step < steps; ++step) {
    clear_gradients(one.task());
    one.forward(ids, step).loss.backward();
    const c10::NoGradGuard no_grad;
    for (at::Tensor& parameter : one->parameters().tensors) {
      if (parameter.grad().defined()) {
        parameter.detach().sub_(0.3 * parameter.grad());
      }
    }
  }
  return one->parameters().tensors;
}

double worst_error(const StepGradients& ranks, const StepGradients& reference) {
  double worst = 0;
  for (const auto& [name, expected] : reference.by_group) {
    const double difference = (ranks.by_group.at(name) - expected).norm().item<double>();
    const double scale = std::max(expected.norm().item<double>(), reference.contributions.at(name));
    worst = std::max(worst, difference > 0 ? difference / scale : 0.0);
  }
  return worst;
}

void expect_exact(Scenario& scenario, const RunConfig& config, const StepSetting& setting, const std::string& what) {
  const StepGradients reference = of_reference(scenario, config, setting), ranks = of_ranks(scenario, config, setting);
  EXPECT_LE(worst_error(ranks, reference), 1e-12) << what;
  EXPECT_NEAR(ranks.loss, reference.loss, 1e-12 * std::max(1.0, std::abs(reference.loss))) << what;
}

}  // namespace lockstep::support
