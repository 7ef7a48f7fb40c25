#pragma once
// What is tried on real runs: each experiment makes the runs that it holds others against, and its trials.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/suites/checkpoint/trainer/bench.h"
#include "harness/suites/engine/suite.h"
#include "harness/verdict/config/run_config.h"

namespace lockstep::restarts {

/// What all experiments are given.
struct Subject {
  RunConfig config;  ///< of the cell, with real ranks and without checkpoints
  int64_t points = 0;
  int64_t cycles = 200, signals = 200, resume_steps = 64;
  int64_t seed = 0;
  std::string mistake;  ///< planted in the saver that is killed, to see it found; empty: none
};

class Experiment {
 public:
  virtual ~Experiment() = default;
  /// Runs, on a bench of its own, what trials are compared with. Throws ConfigError where a run without a failure fails, or
  /// where two of them differ.
  virtual std::vector<Trial> trials(Bench& bench) = 0;
  virtual std::vector<CaseResult> run(const Trial& trial, Bench& bench) const = 0;
  virtual std::vector<std::pair<std::string, std::string>> facts(const Measurements& /*measured*/) const { return {}; }
};

struct ExperimentKind {
  std::string_view name;  ///< also the first word of its trials' names
  std::string_view help;
  std::unique_ptr<Experiment> (*make)(const Subject& subject);
};
/// All, in the order in which they are run.
std::span<const ExperimentKind> experiment_kinds();

std::unique_ptr<Experiment> make_kills(const Subject& subject);
std::unique_ptr<Experiment> make_resumes(const Subject& subject);
std::unique_ptr<Experiment> make_left_out(const Subject& subject);
std::unique_ptr<Experiment> make_reshards(const Subject& subject);
std::unique_ptr<Experiment> make_cycles(const Subject& subject);
std::unique_ptr<Experiment> make_preemptions(const Subject& subject);

/// Runs of one config: how the ranks share the cell's batch, and when they save.
struct Shape {
  int ranks = 2;
  int64_t steps = 0, every = 0;
  int keep = 3;
  bool async = false, sharded = false;
};
/// Throws ConfigError if the batch cannot be shared so.
RunConfig shaped(const RunConfig& config, const Shape& shape);

/// An uninterrupted run that a second one equals byte for byte. Throws ConfigError if it fails, or if they differ.
std::string reference(Bench& bench, const std::string& name, const RunConfig& config, const Planted& planted = {});

inline CaseResult good(std::string outcome) { return {std::move(outcome), CaseVerdict::good, 1, ""}; }
inline CaseResult fault(std::string outcome, std::string sentence) {
  return {std::move(outcome), CaseVerdict::fault, 1, std::move(sentence)};
}

}  // namespace lockstep::restarts
