#include "scenarios/energy/evaluation.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "harness/lib/data/sampler.h"

namespace lockstep {
namespace {

constexpr int64_t kFittedCandidates = 24;
constexpr uint64_t kGroupingSeed = 20240229;  // Which pairs meet in a group is the same for every run.
constexpr int64_t kEnergyRowsAtOnce = 8;            // Keeps the block of energies in the processor's cache.

/// Energies of each group's rows against its own candidates: [groups * N, N].
/// With `turn` each row's context is that of the row so many places on in its group.
at::Tensor group_energies(const EnergyModel& model, const PairTensors& pairs, int64_t candidates, const Heartbeat& heartbeat,
                          int64_t turn = 0) {
  const int64_t groups = pairs.size() / candidates;
  const std::vector<int64_t> order = torch_randperm(pairs.size(), kGroupingSeed);
  const at::Tensor index =
      at::tensor(at::ArrayRef<int64_t>(order.data(), static_cast<std::size_t>(groups * candidates)));
  const at::Tensor turned = index.view({groups, candidates}).roll(-turn, 1).reshape({-1});
  const EncodedContext context =
      model.encode_context(pairs.context_PSC.index_select(0, turned), pairs.mask_PS.index_select(0, turned));
  const at::Tensor action_PA = pairs.action_PA.index_select(0, index);
  at::Tensor energies = at::empty({groups * candidates, candidates}, at::kFloat);
  for (int64_t group = 0; group < groups; ++group) {
    const EncodedCandidates own = model.encode_candidates(action_PA.narrow(0, group * candidates, candidates));
    for (int64_t row = 0; row < candidates; row += kEnergyRowsAtOnce) {
      heartbeat();
      const int64_t begin = group * candidates + row;
      const int64_t rows = std::min(kEnergyRowsAtOnce, candidates - row);
      energies.narrow(0, begin, rows).copy_(model.scores(context.rows(begin, rows), own));
    }
  }
  return energies;
}

struct Retrieval {
  double accuracy = 0, cross_entropy = 0;
};

/// Row i's positive is column i mod N. Ties count against the row.
Retrieval score(const at::Tensor& energies, double tau) {
  const int64_t rows = energies.size(0);
  const int64_t candidates = energies.size(1);
  const float* energy = energies.const_data_ptr<float>();
  Retrieval result;
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = energy + i * candidates;
    const int64_t positive = i % candidates;
    const float lowest = *std::min_element(row, row + candidates);
    double sum = 0;
    bool best = true;
    for (int64_t j = 0; j < candidates; ++j) {
      sum += std::exp((static_cast<double>(lowest) - row[j]) / tau);
      best = best && (j == positive || row[j] > row[positive]);
    }
    result.accuracy += best ? 1 : 0;
    result.cross_entropy += std::log(sum) + (static_cast<double>(row[positive]) - lowest) / tau;
  }
  result.accuracy /= static_cast<double>(rows);
  result.cross_entropy /= static_cast<double>(rows);
  return result;
}

/// Minimises the cross-entropy over log tau by golden section; it is convex in 1 / tau.
double fit_temperature(const at::Tensor& energies) {
  constexpr double kGolden = 0.6180339887498949;
  double low = std::log(1e-3);
  double high = std::log(1e3);
  double a = high - kGolden * (high - low);
  double b = low + kGolden * (high - low);
  double at_a = score(energies, std::exp(a)).cross_entropy;
  double at_b = score(energies, std::exp(b)).cross_entropy;
  for (int i = 0; i < 40; ++i) {
    if (at_a < at_b) {
      high = b;
      b = a;
      at_b = at_a;
      a = high - kGolden * (high - low);
      at_a = score(energies, std::exp(a)).cross_entropy;
    } else {
      low = a;
      a = b;
      at_a = at_b;
      b = low + kGolden * (high - low);
      at_b = score(energies, std::exp(b)).cross_entropy;
    }
  }
  return std::exp(0.5 * (low + high));
}

}  // namespace

double fitted_temperature(const EnergyModel& model, const PairTensors& holdout, const Heartbeat& heartbeat) {
  const c10::NoGradGuard no_grad;
  return holdout.size() < kFittedCandidates
             ? 0.0
             : fit_temperature(group_energies(model, holdout, kFittedCandidates, heartbeat));
}

void add_retrieval(const EnergyModel& model, const PairTensors& pairs, int64_t candidates, double fitted_tau,
                   std::map<std::string, double>& metrics, const Heartbeat& heartbeat) {
  if (pairs.size() < candidates) {
    return;
  }
  const c10::NoGradGuard no_grad;
  const at::Tensor energies = group_energies(model, pairs, candidates, heartbeat);
  const Retrieval result = score(energies, model.temperature().item<double>());
  const std::string suffix = std::to_string(candidates);
  metrics["accuracy_" + suffix] = result.accuracy;
  metrics["cross_entropy_" + suffix] = result.cross_entropy;
  if (fitted_tau > 0) {
    metrics["cross_entropy_" + suffix + "_fitted"] = score(energies, fitted_tau).cross_entropy;
  }
}

void add_shortcut_control(const EnergyModel& model, const PairTensors& pairs, int64_t candidates,
                          std::map<std::string, double>& metrics, const Heartbeat& heartbeat) {
  if (pairs.size() < candidates) {
    return;
  }
  const c10::NoGradGuard no_grad;
  metrics["accuracy_" + std::to_string(candidates) + "_permuted_context"] =
      score(group_energies(model, pairs, candidates, heartbeat, 1), model.temperature().item<double>()).accuracy;
}

}  // namespace lockstep
