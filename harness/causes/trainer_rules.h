#pragma once
// What a trainer adds to the rules that hold for any: roles of its parameters, rules of its own, and their
// pages.

#include <span>
#include <string_view>

#include "harness/causes/rules.h"

namespace lockstep::causes {

/// What a group of parameters is to its trainer, as a number of the trainer's own: one encoder, the head, the
/// rest.
using Role = int;

struct TrainerRules {
  /// Of a group of parameters ("encoder"). One mistake acts on groups of one role alike. Null: roles
  /// are not known, and no rule that needs them runs.
  Role (*role_of)(std::string_view group) = nullptr;
  /// Asked where the first divergence lies in that phase, before the rules that hold for any trainer; null:
  /// none.
  std::span<const Rule> (*rules)(Phase phase) = nullptr;
  /// Of the codes that its rules alone answer with, family by family; null: none.
  std::span<const CausePage> (*pages)() = nullptr;
};

/// The rules of one trainer.
struct RulesOfTrainer {
  std::string_view trainer;  ///< its name
  const TrainerRules* rules = nullptr;
};

/// Every trainer that has rules. Defined in scenarios/causes.cpp, apart from the trainers' specs: the rank program
/// links those, and must not change with a rule or its words, or every run would train anew.
std::span<const RulesOfTrainer> all_trainer_rules();

/// Those of a trainer; without any where it has none.
const TrainerRules& trainer_rules(std::string_view trainer);
/// Those of the runs' trainer; without any where it is not known.
const TrainerRules& trainer_rules(const CauseInputs& inputs);

}  // namespace lockstep::causes
