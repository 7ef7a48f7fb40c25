#pragma once
// What a trainer adds to the rules that hold for any: roles of its parameters, rules of its own, and their
// pages.

#include <span>
#include <string_view>

#include "harness/causes/rules.h"

namespace lockstep::causes {

/// What a group of parameters is in its trainer's model (one encoder, the head, the rest), as a number that
/// the trainer defines.
using Role = int;

struct TrainerRules {
  /// The role of a group of parameters ("encoder"). One mistake acts on all groups of a role alike. Null:
  /// roles are not known, and no rule that needs them runs.
  Role (*role_of)(std::string_view group) = nullptr;
  /// Asked where the first divergence lies in that phase, before the rules that hold for any trainer; null:
  /// none.
  std::span<const Rule> (*rules)(Phase phase) = nullptr;
  /// Pages of the codes that only its rules give, family by family; null: none.
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

/// The rules of a trainer; empty ones if it has none.
const TrainerRules& trainer_rules(std::string_view trainer);
/// The rules of the runs' trainer; empty ones if it is not known.
const TrainerRules& trainer_rules(const CauseInputs& inputs);

}  // namespace lockstep::causes
