#pragma once
// Names and one line of help for what stands in rooms that need LibTorch, for programs that do not
// have it. A test holds this table and the real ones equal.

#include <span>
#include <string_view>

namespace lockstep {

struct CatalogueEntry {
  std::string_view name;
  std::string_view help;
};

std::span<const CatalogueEntry> catalogue_scenarios();
std::span<const CatalogueEntry> catalogue_losses();
std::span<const CatalogueEntry> catalogue_mutants();
/// Metrics that outcomes can be judged by.
std::span<const CatalogueEntry> catalogue_metrics();

}  // namespace lockstep
