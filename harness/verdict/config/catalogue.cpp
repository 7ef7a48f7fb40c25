#include "harness/verdict/config/catalogue.h"

#include <array>
#include <vector>

#include "harness/verdict/config/mutants.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {
namespace {

constexpr std::array<CatalogueEntry, 4> kLosses{{
    {"hard", "InfoNCE over the quarter of the in-batch candidates that fits each row best"},
    {"infonce", "swap InfoNCE: each row's own action among its candidates"},
    {"sigmoid", "SigLIP-style: every pair judged alone, matching or not; no sum over candidates"},
    {"symmetric", "InfoNCE of rows and of columns; columns are summed over ranks by their log-sum-exp"},
}};

}  // namespace

std::span<const CatalogueEntry> catalogue_scenarios() {
  static const std::vector<CatalogueEntry> entries = [] {
    std::vector<CatalogueEntry> all;
    for (const TrainerSpec* spec : trainer_specs()) all.push_back({spec->name, spec->help});
    return all;
  }();
  return entries;
}
std::span<const CatalogueEntry> catalogue_losses() { return kLosses; }
std::span<const CatalogueEntry> catalogue_mutants() {
  static const std::vector<CatalogueEntry> entries = [] {
    std::vector<CatalogueEntry> all{{"none", "no fault is planted"}};
    for (const MutantEntry& entry : mutant_entries()) all.push_back({entry.name, entry.help});
    return all;
  }();
  return entries;
}

}  // namespace lockstep
