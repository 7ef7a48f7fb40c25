#pragma once
// Names, parameters and a line of help of what stands in rooms that need LibTorch, for programs that do not
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
/// What a matrix may ask. Defined in harness/questions/table.cpp.
std::span<const CatalogueEntry> catalogue_questions();

/// The nearest of `names` by edit distance, at most a third of the word's length (and at least one letter)
/// away; empty if none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> names);

}  // namespace lockstep
