#pragma once
// Kinds of trainers: what one rank does. One plain table lists them; a test holds it equal to the torch-free
// catalogue.

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/core/fault.h"
#include "harness/trainers/core/task.h"
#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// A kind of trainer. One object serves all ranks of a process: what `prepare` made is only read afterwards.
class Scenario {
 public:
  virtual ~Scenario() = default;
  /// Loads the data. Throws ConfigError.
  virtual void prepare(const RunConfig& config) = 0;
  /// Makes of the data what needs no tensor, once a process: `prepare` finds it there, in this one and in those forked from it.
  /// Throws as `prepare` does.
  virtual void make_ready(const RunConfig& /*config*/) {}
  /// Number of training samples; ids run from 0.
  virtual int64_t samples() const = 0;
  /// Hash of the data that `prepare` read.
  virtual std::string data_hash() const = 0;
  /// One rank's replica; called in that rank's thread. `config`, `comm` and `mutant` (or null) outlive it.
  virtual std::unique_ptr<Task> make_task(const RunConfig& config, Comm& comm, Mutant* mutant) = 0;
};

struct ScenarioEntry {
  std::string_view name;
  std::unique_ptr<Scenario> (*make)();
};

std::span<const ScenarioEntry> scenarios();

/// Throws std::invalid_argument if there is no such kind.
std::unique_ptr<Scenario> make_scenario(std::string_view name);

std::unique_ptr<Scenario> make_classify_scenario();
std::unique_ptr<Scenario> make_energy_scenario();
std::unique_ptr<Scenario> make_flow_rl_scenario();

}  // namespace lockstep
