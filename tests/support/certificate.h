#pragma once
// The gradient of a config's ranks, emulated, against the plain reference in one process, by parameter group.

#include <ATen/ATen.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/plan/config/run_config.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/trainers/comm/ledger.h"
#include "scenarios/scenario.h"

namespace lockstep::support {

/// A float64 config of few rows and a small model, on generated data.
RunConfig small_config(int world_size, int rows_per_rank);

struct StepGradients {
  double loss = 0;                             ///< mean over ranks
  std::map<std::string, at::Tensor> by_group;  ///< flat, after the mean over ranks
  std::map<std::string, double>
      contributions;                ///< sums over rows of the norms of their gradients; of a reference
  std::vector<StepOutput> outputs;  ///< of every rank, its first micro-step
};

struct StepSetting {
  std::vector<int64_t> ids;  ///< the step's whole batch
  int64_t step = 3;
  /// Parameters of a model are set from here; undefined: as they were drawn.
  std::vector<at::Tensor> parameters = {};
};

/// `config` on so many ranks under every partitioning of its rows; one rank has one.
std::vector<RunConfig> partitioned(RunConfig config, std::initializer_list<int> worlds);

/// The task of one rank alone.
class Alone {
 public:
  Alone(Scenario& scenario, RunConfig config)
      : config_(std::move(config)), comm_(make_solo_comm()), task_(scenario.make_task(config_, *comm_, nullptr)) {}
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  Task& task() { return *task_; }
  Task* operator->() { return task_.get(); }
  StepOutput forward(const std::vector<int64_t>& ids, int64_t step = 4);
  /// Flat, of a batch that is taken `part` rows at a time.
  at::Tensor gradient(const std::vector<int64_t>& ids, int64_t part);

 private:
  const RunConfig config_;
  std::unique_ptr<Comm> comm_;
  std::unique_ptr<Task> task_;
};

void expect_parameters(const ParameterList& found, const std::vector<ModelParameter>& expected);

/// Runs config's ranks as threads. Throws what a rank threw.
StepGradients of_ranks(Scenario& scenario, const RunConfig& config, const StepSetting& setting);

/// The reference of the same config: one process, config.oracle_world = world size.
StepGradients of_reference(Scenario& scenario, const RunConfig& config, const StepSetting& setting);

/// Parameters after `steps` steps of gradient descent on the reference.
std::vector<at::Tensor> trained(Scenario& scenario, const RunConfig& config, const std::vector<int64_t>& ids,
                                int steps);

/// The largest |g - g_ref| / max(|g_ref|, contributions of the rows) over the groups; 0 where all of it is
/// zero.
double worst_error(const StepGradients& ranks, const StepGradients& reference);

/// Ranks have the reference's loss and gradients up to float64's rounding.
void expect_exact(Scenario& scenario, const RunConfig& config, const StepSetting& setting, const std::string& what);

}  // namespace lockstep::support
