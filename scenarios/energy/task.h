#pragma once

#include <map>
#include <string>

#include "scenarios/energy/model.h"

// Retrieval at a common number of candidates: what models trained with different negatives can be compared
// by.

namespace lockstep {

/// One temperature that minimises the held-out pairs' 24-way cross-entropy; 0 if there are too few pairs for
/// a group. A run may rank well and be badly calibrated: cross-entropy at this temperature tells the two
/// apart.
double fitted_temperature(const EnergyModel& model, const PairTensors& holdout, const Heartbeat& heartbeat = [] {});

/// Accuracy and cross-entropy of N-way retrieval over fixed groups of test pairs, the same for every run:
/// accuracy_N and cross_entropy_N, and with fitted_tau > 0 cross_entropy_N_fitted at that temperature instead
/// of the model's own. Groups are a fixed shuffle of the pairs; an incomplete one is left out, and without a
/// whole one there is no metric.
void add_retrieval(const EnergyModel& model, const PairTensors& pairs, int64_t candidates, double fitted_tau,
                   std::map<std::string, double>& metrics, const Heartbeat& heartbeat = [] {});

/// accuracy_N_permuted_context: the same retrieval where each row's context is that of its neighbour in the
/// group. An energy that looks at the context finds the neighbour's action instead and is at chance or below;
/// one that has learned to tell real actions from made ones, whatever the context, is not.
void add_shortcut_control(const EnergyModel& model, const PairTensors& pairs, int64_t candidates,
                          std::map<std::string, double>& metrics, const Heartbeat& heartbeat = [] {});

}  // namespace lockstep
