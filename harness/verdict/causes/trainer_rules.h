#pragma once
// What a trainer adds to the rules that hold for any: roles of its parameters, rules of its own, and their
// pages.

#include <optional>
#include <span>
#include <string_view>

#include "harness/verdict/causes/rules.h"

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
  /// The role of that name, as a trace's header may declare it ("candidate encoder"); nothing: none of this trainer's.
  /// Null: its roles cannot be declared.
  std::optional<Role> (*role_named)(std::string_view name) = nullptr;
  /// Those of its rules that rest on roles alone, in closed forms: they hold for any model that declares these roles.
  std::span<const Rule> (*rules_of_roles)(Phase phase) = nullptr;
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
/// The rules of the runs' trainer; of a trainer that is not ours those whose roles the cell's header declares, all of
/// them; else empty ones.
const TrainerRules& trainer_rules(const CauseInputs& inputs);

/// What the header of the cell's traces declares; null: nothing.
const Declared* declared_of(const CauseInputs& inputs);

}  // namespace lockstep::causes
