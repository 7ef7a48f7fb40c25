#pragma once
// Retrieval at a common number of candidates: what models trained with different negatives can be compared
// by.

#include <map>
#include <string>

#include "scenarios/energy_data.h"
#include "scenarios/energy_model.h"

namespace lockstep {

/// Accuracy and cross-entropy of N-way retrieval over fixed groups of test pairs, the same for every run:
/// accuracy_N, cross_entropy_N for the N given. Groups are a fixed shuffle of the pairs; an incomplete one is
/// left out.
void add_retrieval(const EnergyModel& model, const PairTensors& pairs, int64_t candidates,
                   std::map<std::string, double>& metrics);

/// cross_entropy_24_fitted and fitted_temperature: one temperature that minimises the held-out pairs' 24-way
/// cross-entropy, then applied to the test pairs. A run may rank well and be badly calibrated; this tells the
/// two apart.
void add_fitted(const EnergyModel& model, const PairTensors& holdout, const PairTensors& test,
                std::map<std::string, double>& metrics);

}  // namespace lockstep
