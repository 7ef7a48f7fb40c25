#include "harness/verdict/evidence/drift.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/results/metric_names.h"
#include "harness/verdict/trace/reader.h"
#include "harness/verdict/trace/record_values.h"

namespace lockstep {
namespace {

using Values = std::map<std::string, std::vector<double>>;

/// The parameters of a step's snapshot, by name; nothing where none was kept.
Values parameters_in(const StepRecords& step) {
  Values parameters;
  for (const Record& record : step.records) {
    // Moments and buffers have a family before their name.
    if (record.phase != Phase::snapshot || record.name.find('/') != std::string::npos) continue;
    if (record.dtype != DType::float32 && record.dtype != DType::float64) continue;
    if (std::optional<std::vector<double>> values = values_of(record)) parameters[record.name] = *std::move(values);
  }
  return parameters;
}

std::map<int64_t, Values> snapshots_in(const std::string& run_dir) {
  std::map<int64_t, Values> snapshots;
  TraceReader reader(run_dir + "/rank-0.trace");
  while (const std::optional<StepRecords> step = reader.next()) {
    if (Values parameters = parameters_in(*step); !parameters.empty()) snapshots[step->step] = std::move(parameters);
  }
  return snapshots;
}

std::set<std::string> parameters_without_gradient(const RunConfig& config) {
  std::set<std::string> names;
  for (const ModelParameter& parameter : spec_of(config).parameters(config, config.data.channels)) {
    if (parameter.without_gradient) names.insert(parameter.name);
  }
  return names;
}

/// What two runs' parameters are apart, as shares of their length.
struct Distance {
  double with_gradient = 0, without = 0;
};

/// Nothing if they are not of one model.
std::optional<Distance> distance_of(const Values& a, const Values& b, const std::set<std::string>& without_gradient) {
  double apart = 0, apart_without = 0, whole = 0;
  if (a.size() != b.size()) return std::nullopt;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) return std::nullopt;
    double& sum = without_gradient.contains(name) ? apart_without : apart;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += (other->second[i] - values[i]) * (other->second[i] - values[i]);
      whole += values[i] * values[i];
    }
  }
  if (whole == 0) return std::nullopt;
  return Distance{std::sqrt(apart / whole), std::sqrt(apart_without / whole)};
}

void add_parameters(const DriftPair& pair, const std::set<std::string>& without_gradient, RunEvidence& apart) {
  Series &moved = apart.curves[std::string(kParameterDrift)], &idle = apart.curves[std::string(kIdleParameterDrift)];
  const std::map<int64_t, Values> cell = snapshots_in(pair.cell_dir);
  for (const auto& [step, parameters] : snapshots_in(pair.reference_dir)) {
    const auto own = cell.find(step);
    if (own == cell.end()) continue;
    const std::optional<Distance> distance = distance_of(parameters, own->second, without_gradient);
    if (!distance) continue;
    moved.steps.push_back(step);
    moved.values.push_back(distance->with_gradient);
    if (without_gradient.empty()) continue;
    idle.steps.push_back(step);
    idle.values.push_back(distance->without);
  }
}

Series differences(const Series& reference, const Series& cell) {
  std::map<int64_t, double> by_step;
  for (std::size_t i = 0; i < reference.steps.size(); ++i) by_step[reference.steps[i]] = reference.values[i];
  Series series;
  for (std::size_t i = 0; i < cell.steps.size(); ++i) {
    const auto other = by_step.find(cell.steps[i]);
    if (other == by_step.end()) continue;
    series.steps.push_back(cell.steps[i]);
    series.values.push_back(std::abs(cell.values[i] - other->second));
  }
  return series;
}

}  // namespace

std::vector<CurveBand> drift_of(const std::vector<DriftPair>& pairs, const RunConfig& config,
                                const std::string& primary_metric) {
  const std::set<std::string> without_gradient = parameters_without_gradient(config);
  std::vector<RunEvidence> apart;
  for (const DriftPair& pair : pairs) {
    RunEvidence& of_pair = apart.emplace_back();
    add_parameters(pair, without_gradient, of_pair);
    for (const std::string& metric : {std::string("loss"), primary_metric}) {
      const auto reference = pair.reference->curves.find(metric);
      const auto cell = pair.cell->curves.find(metric);
      if (reference == pair.reference->curves.end() || cell == pair.cell->curves.end()) continue;
      of_pair.curves[metric] = differences(reference->second, cell->second);
    }
  }
  std::vector<const RunEvidence*> seeds;
  for (const RunEvidence& of_pair : apart) seeds.push_back(&of_pair);
  std::vector<std::string> metrics{std::string(kParameterDrift), std::string(kIdleParameterDrift), "loss"};
  if (primary_metric != "loss") metrics.push_back(primary_metric);
  return curve_bands(seeds, metrics);
}

}  // namespace lockstep
