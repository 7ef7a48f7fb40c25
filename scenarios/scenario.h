#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/trainers/comm/comm.h"
#include "harness/trainers/core/task.h"

// Kinds of trainers: what one rank does. One plain table lists them; a test holds it equal to the torch-free
// catalogue.

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

// Data without LibTorch that a process makes once and the ranks forked from it share.

/// The data of the newest config that asked; another one's takes its place. One thread asks.
template <class Data>
class KeptData {
 public:
  /// That of `make`, or what it gave when a config with the same keys data.* asked last. Throws what it throws.
  template <class Make>
  std::shared_ptr<const Data> of(const RunConfig& config, Make make) {
    std::string key;
    for (const RunField* field : fields_of(spec_of(config))) {
      if (field->spec.key.starts_with("data.")) key += text_of(field->of(config)) + '\n';
    }
    if (data_ == nullptr || key != key_) {
      data_ = nullptr;  // not both at once
      data_ = std::make_shared<const Data>(make());
      key_ = std::move(key);
    }
    return data_;
  }

 private:
  std::string key_;
  std::shared_ptr<const Data> data_;
};

/// A trainer whose samples are cut from series: once a process without LibTorch (`Dataset`), then made tensors (`Data`).
template <class Dataset, class Data, class OwnTask>
class SeriesScenario : public Scenario {
 public:
  using Load = Dataset (*)(const RunConfig& config);
  using MakeData = Data (*)(const Dataset& dataset, const RunConfig& config);
  SeriesScenario(Load load, MakeData make_data) : load_(load), make_data_(make_data) {}

  void make_ready(const RunConfig& config) override { dataset_of(config); }
  void prepare(const RunConfig& config) override {
    const auto dataset = dataset_of(config);
    data_ = std::make_shared<const Data>(make_data_(*dataset, config));
    data_hash_ = dataset->hash;
  }
  int64_t samples() const override { return data_->train.size(); }
  std::string data_hash() const override { return data_hash_; }
  std::unique_ptr<Task> make_task(const RunConfig& config, Comm& comm, Mutant* mutant) override {
    return std::make_unique<OwnTask>(config, data_, comm, mutant);
  }

 private:
  std::shared_ptr<const Dataset> dataset_of(const RunConfig& config) {
    static KeptData<Dataset> kept;
    return kept.of(config, [&] { return load_(config); });
  }

  const Load load_;
  const MakeData make_data_;
  std::string data_hash_;
  std::shared_ptr<const Data> data_;
};

}  // namespace lockstep
