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
  /// Of a group of parameters ("context_encoder"). One mistake acts on groups of one role alike. Null: roles
  /// are not known, and no rule that needs them runs.
  Role (*role_of)(std::string_view group) = nullptr;
  /// Asked where the first divergence lies in that phase, before the rules that hold for any trainer; null:
  /// none.
  std::span<const Rule> (*rules)(Phase phase) = nullptr;
  /// Of the codes that its rules alone answer with, family by family; null: none.
  std::span<const CausePage> (*pages)() = nullptr;
};

/// Those of the runs' trainer; without any where it is not known or has none.
const TrainerRules& trainer_rules(const CauseInputs& inputs);

}  // namespace lockstep::causes
