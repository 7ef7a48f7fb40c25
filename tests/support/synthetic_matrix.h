#pragma once
// A matrix whose runs stand in memory: plan, rank results, mechanisms and certifications as a test plants
// them; simulations: draws by a counter, the same in every run; shares, judged so that a right program does not fail by luck.

#include <boost/math/distributions/beta.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "harness/answer/questions/matrix_judge.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/plan/config/canonical.h"

namespace lockstep::support {

/// Scatter of a seed's difference, known and uneven; mean 0 and standard deviation 1 over seeds 0 to 9.
inline double scatter(int64_t seed) {
  static constexpr double kPattern[] = {0.9, -1.3, 0.2, 1.7, -0.6, -0.1, 1.1, -1.6, 0.4, -0.7};
  static constexpr double kSpread = 1.0656244908763854;  // of the pattern, whose mean is 0
  return kPattern[((seed % 10) + 10) % 10] / kSpread;
}

struct PlantedCell {
  std::string name;
  double effect = 0;       ///< on accuracy_24
  double sd = 0.008;       ///< of the paired difference
  double loss_effect = 0;  ///< on the training loss
  bool power_control = false;
  std::vector<VerdictKind> expected = {};
};

class SyntheticMatrix {
 public:
  explicit SyntheticMatrix(int seeds = 10, int64_t steps = 100) : steps_(steps) {
    Matrix& m = plan.matrix;
    m.name = "synthetic";
    m.file = "configs/synthetic.yaml";
    m.question_text = "Does 8x3 learn the same as 1x24?";
    m.question = "outcome";
    m.primary.metric = "accuracy_24";
    m.certify_steps = 20;
    for (int64_t seed = 0; seed < seeds; ++seed) m.seeds.push_back(seed);
    options.out_dir = "out/synthetic";
    options.command = "lockstep run configs/synthetic.yaml";
    reference_.layout = {1, 24};
    reference_.steps = steps_;
    for (int64_t seed : m.seeds) {
      add_run(RunRole::reference, kReference, reference_, seed);
      write_results(id_of(kReference, seed), 1, 0.7 + 0.01 * scatter(seed + 3), 0.3, seed);
    }
  }

  void add_cell(const PlantedCell& planted) {
    Cell cell;
    cell.name = planted.name;
    cell.reference = reference_;
    cell.reference_name = kReference;
    cell.config = reference_;
    cell.config.layout = {8, 3};
    cell.power_control = planted.power_control;
    cell.expected = planted.expected;
    cell.settings = {{"layout", "8x3"}, {"variant", planted.name}};
    // A field of the config that tells the cells' hashes apart.
    cell.config.lr_scale = 1.0 + static_cast<double>(plan.matrix.cells.size());
    for (int64_t seed : plan.matrix.seeds) {
      add_run(RunRole::cell, planted.name, cell.config, seed);
      write_results(id_of(planted.name, seed), 8,
                    0.7 + 0.01 * scatter(seed + 3) + planted.effect + planted.sd * scatter(seed),
                    0.3 + planted.loss_effect + 0.002 * scatter(seed + 5), seed);
    }
    RunConfig real = cell.config;
    real.backend = Backend::gloo;
    real.steps = 20;
    add_run(RunRole::certify, planted.name, real, 0);
    results_of(certify_id(planted.name), 8);
    Mechanism mechanism;
    mechanism.verdict = VerdictKind::within_envelope;
    mechanism.band_used = 0.19;
    mechanism.band_measured = true;
    mechanism.compared_steps = steps_;
    mechanism.sentence = "Differs inside the measured band, 19 % of it used.";
    mechanisms[id_of(planted.name, 0)] = mechanism;
    plan.matrix.cells.push_back(cell);
  }

  /// The usual matrix: a cell that learns the same, one that learns worse, and a power control.
  static SyntheticMatrix usual() {
    SyntheticMatrix matrix;
    matrix.add_cell({"8x3 global", 0.001, 0.008, 0.0, false, {VerdictKind::equivalent}});
    matrix.add_cell({"8x3 local", -0.094, 0.02, -0.1, false, {VerdictKind::divergent}});
    matrix.add_cell({"8x3 global lr_scale=0.125", -0.347, 0.018, 0.2, true, {}});
    return matrix;
  }

  static std::string id_of(const std::string& cell, int64_t seed) {
    return cell + " seed " + std::to_string(seed);
  }
  static std::string certify_id(const std::string& cell) { return cell + " certify"; }
  std::string path_of(const std::string& id, int rank) const {
    return options.out_dir + "/runs/" + id + "/rank-" + std::to_string(rank) + ".result.json";
  }
  RankResult& result(const std::string& id, int rank = 0) { return results.at(path_of(id, rank)); }

  EvidenceSources sources() const {
    EvidenceSources s;
    s.read_rank_result = [this](const std::string& path) -> RankResult {
      const auto found = results.find(path);
      if (found == results.end()) throw std::runtime_error(path + ": no such file");
      return found->second;
    };
    s.compare_runs = [this](const CompareOptions& compare) { return mechanism_of(compare.run_b); };
    s.judge_forced = [this](const ForcedInputs& inputs) {
      if (on_forced) on_forced(inputs);
      return mechanism_of(inputs.run_b);
    };
    s.certify = [this](const std::string&, const std::string& real_dir, int64_t asked) {
      const auto found = certifications.find(real_dir.substr(real_dir.rfind('/') + 1));
      if (found != certifications.end()) return found->second;
      Certification agreed;
      agreed.steps = asked;
      return agreed;
    };
    return s;
  }

  Results judge() const { return judge_matrix_from(plan, options, sources()); }

  static constexpr const char* kReference = "1x24 global";
  Plan plan;
  JudgeOptions options;
  std::map<std::string, RankResult> results;            ///< by path
  std::map<std::string, Mechanism> mechanisms;          ///< by run id; none: the trace is torn
  std::map<std::string, Certification> certifications;  ///< by run id; none: all that was asked agrees
  std::function<void(const ForcedInputs&)> on_forced;

  PlannedRun& add_run(RunRole role, const std::string& cell, RunConfig config, int64_t seed) {
    config.seed = seed;
    PlannedRun run;
    run.role = role;
    run.cell = cell;
    run.config = config;
    run.hash = config_hash(config);
    run.id = role == RunRole::certify ? certify_id(cell) : id_of(cell, seed);
    plan.runs.push_back(run);
    return plan.runs.back();
  }

  /// Finished results of all ranks of a run, without metrics.
  void results_of(const std::string& id, int world_size) {
    for (int rank = 0; rank < world_size; ++rank) {
      RankResult result;
      result.rank = rank;
      result.world_size = world_size;
      result.status = "finished";
      result.phase = "evaluate";
      result.steps_done = steps_;
      results[path_of(id, rank)] = result;
    }
  }

 private:
  Mechanism mechanism_of(const std::string& dir) const {
    const auto found = mechanisms.find(dir.substr(dir.rfind('/') + 1));
    if (found == mechanisms.end())
      throw std::runtime_error(dir + "/rank-0.trace: offset 96: the checksum is wrong");
    return found->second;
  }

  void write_results(const std::string& id, int world_size, double accuracy, double loss, int64_t seed) {
    results_of(id, world_size);
    for (int rank = 0; rank < world_size; ++rank) {
      RankResult& r = result(id, rank);
      for (int64_t step = 0; step < steps_; ++step) {
        const double decay = std::exp(-static_cast<double>(step) / 10.0);
        // Ranks differ, their mean does not.
        const double of_rank = world_size == 1 ? 0 : 0.01 * (rank - (world_size - 1) / 2.0);
        r.curves["loss_over_log_n"].steps.push_back(step);
        r.curves["loss_over_log_n"].values.push_back(loss + decay + of_rank);
      }
      if (rank > 0) continue;
      for (int64_t step = 0; step <= steps_; step += 25) {
        r.curves["accuracy_24"].steps.push_back(step);
        r.curves["accuracy_24"].values.push_back(accuracy * static_cast<double>(step) /
                                                 static_cast<double>(steps_));
      }
      r.metrics = {{"accuracy_24", accuracy},
                   {"accuracy_256", accuracy / 3},
                   {"cross_entropy_24", 1.0 + loss},
                   {"cross_entropy_24_fitted", 1.7 - accuracy},
                   {"temperature", 0.2 + 0.001 * scatter(seed + 7)}};
    }
  }

  int64_t steps_;
  RunConfig reference_;
};

class NormalDraws {
 public:
  explicit NormalDraws(uint64_t key) : next_(key << 32) {}
  /// In (0, 1].
  double uniform() { return (static_cast<double>(mix_key(next_++) >> 11) + 1) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform()); }

 private:
  uint64_t next_;
};

struct Proportion {
  int hits = 0, trials = 0;
};

/// Clopper-Pearson bounds that hold but once in a million: a promise is broken where they lie wholly on its
/// bad side.
inline Interval certain_bounds(const Proportion& p) {
  using boost::math::beta_distribution;
  constexpr double kMiss = 5e-7;
  const double k = p.hits, n = p.trials;
  return {p.hits == 0 ? 0.0 : quantile(beta_distribution<>(k, n - k + 1), kMiss),
          p.hits == p.trials ? 1.0 : quantile(complement(beta_distribution<>(k + 1, n - k), kMiss)),
          1 - 2 * kMiss};
}

}  // namespace lockstep::support
