#include "harness/judge/causes/rules.h"

#include <algorithm>
#include <array>

#include "harness/plan/config/trainer_spec.h"

namespace lockstep::causes {
namespace {

/// Does the header declare roles, and does the trainer know every one?
bool knows_all_roles(const TrainerRules& rules, const Declared& declared) {
  bool any = false;
  for (const DeclaredParameters& each : declared.parameters) {
    if (each.role.empty()) continue;
    if (!rules.role_named(each.role)) return false;
    any = true;
  }
  return any;
}

}  // namespace

const TrainerRules& trainer_rules(std::string_view trainer) {
  static constexpr TrainerRules kNone;
  const auto all = all_trainer_rules();
  const auto at = std::ranges::find(all, trainer, &RulesOfTrainer::trainer);
  return at == all.end() ? kNone : *at->rules;
}

const TrainerRules& trainer_rules(const CauseInputs& inputs) {
  if (inputs.rules) return *inputs.rules;
  if (inputs.trainer) return trainer_rules(inputs.trainer->name);
  static constexpr TrainerRules kNone;
  const Declared* declared = declared_of(inputs);
  if (!declared) return kNone;
  for (const RulesOfTrainer& each : all_trainer_rules())
    if (each.rules->role_named && knows_all_roles(*each.rules, *declared)) return *each.rules;
  return kNone;
}

const Declared* declared_of(const CauseInputs& inputs) {
  return inputs.cell ? inputs.cell->declared.get() : nullptr;
}

}  // namespace lockstep::causes

namespace lockstep {
namespace {

/// Families in the order of a step, and what belongs to no step after them.
constexpr std::array<std::string_view, 12> kFamilies = {"samples",  "random", "control",   "energies",
                                                        "loss",     "gradient", "reduction", "update",
                                                        "replicas", "ledger",   "failed",    "always"};

/// A family that stands nowhere in the order comes before what belongs to no step.
std::size_t place_of(std::string_view family) {
  const auto at = std::ranges::find(kFamilies, family);
  return static_cast<std::size_t>((at == kFamilies.end() ? kFamilies.end() - 2 : at) - kFamilies.begin());
}

}  // namespace

std::span<const CausePage> cause_pages() {
  static const std::vector<CausePage> pages = [] {
    std::vector<CausePage> all;
    for (const causes::RulesOfTrainer& it : causes::all_trainer_rules()) {
      if (!it.rules->pages) continue;
      const auto own = it.rules->pages();
      all.insert(all.end(), own.begin(), own.end());
    }
    for (const auto family :
         {causes::data_pages(), causes::reward_pages(), causes::gradient_pages(), causes::reduction_pages(),
          causes::run_pages()}) {
      all.insert(all.end(), family.begin(), family.end());
    }
    std::ranges::stable_sort(all, {}, [](const CausePage& page) { return place_of(page.family); });
    return all;
  }();
  return pages;
}

const CausePage* find_cause_page(std::string_view code) {
  const std::span<const CausePage> pages = cause_pages();
  const auto found = std::ranges::find(pages, code, &CausePage::code);
  return found == pages.end() ? nullptr : &*found;
}

}  // namespace lockstep
