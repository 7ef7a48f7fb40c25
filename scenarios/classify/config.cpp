#include "scenarios/classify/config.h"

#include <array>

namespace lockstep {

std::span<const std::string_view> words_of(NormKind) {
  static constexpr auto kWords = std::to_array<std::string_view>({"none", "batch", "sync_batch"});
  static_assert(kWords.size() == static_cast<std::size_t>(NormKind::sync_batch) + 1);
  return kWords;
}

std::span<const std::string_view> words_of(DenominatorOver) {
  static constexpr auto kWords = std::to_array<std::string_view>({"valid_steps", "rows", "constant"});
  static_assert(kWords.size() == static_cast<std::size_t>(DenominatorOver::constant) + 1);
  return kWords;
}

std::span<const std::string_view> words_of(DenominatorScope) {
  static constexpr auto kWords = std::to_array<std::string_view>({"global", "local", "micro"});
  static_assert(kWords.size() == static_cast<std::size_t>(DenominatorScope::micro) + 1);
  return kWords;
}

std::string_view word_of(NormKind norm) { return words_of(norm)[static_cast<std::size_t>(norm)]; }
std::string_view word_of(DenominatorOver over) { return words_of(over)[static_cast<std::size_t>(over)]; }
std::string_view word_of(DenominatorScope scope) { return words_of(scope)[static_cast<std::size_t>(scope)]; }

namespace {

/// TEMPORARY: until a run carries its trainer's section, all runs of a process share this one.
ClassifyConfig& shared_section() {
  static ClassifyConfig section;
  return section;
}

}  // namespace

const ClassifyConfig& classify(const RunConfig&) { return shared_section(); }
ClassifyConfig& classify(RunConfig&) { return shared_section(); }

}  // namespace lockstep
