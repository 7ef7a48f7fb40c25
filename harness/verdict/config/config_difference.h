#pragma once
// The keys in which two runs are configured otherwise.

#include <span>
#include <string>
#include <vector>

#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// A key that can change what is trained, with both values in words. `declared`: an axis of the matrix or an expectation
/// names it, so that the difference is what is asked about.
struct ConfigDifference {
  std::string key, reference, cell;
  bool declared = false;
};

/// In the order of the keys. How a step's rows are divided among ranks is no difference, nor what is written down, kept or
/// watched, nor a planted mistake, which stands for one in the code; another number of rows a step is one, of `layout`.
/// Nothing where the reference is computed by the loss's plain form, which follows from the cell. `declared`: see
/// ConfigDifference.
std::vector<ConfigDifference> config_differences(const RunConfig& reference, const RunConfig& cell,
                                                 std::span<const std::string> declared = {});

/// Two configs of which either may be unknown, and the keys in which they may differ: see ConfigDifference.
struct ConfigPair {
  const RunConfig* reference = nullptr;
  const RunConfig* cell = nullptr;
  std::vector<std::string> declared = {};

  bool both_known() const { return reference && cell; }
};
/// The same of a pair; nothing where one of the two is unknown.
std::vector<ConfigDifference> config_differences(const ConfigPair& configs);

/// "weight_decay 0 / 0.1, clip_norm 0 / 1": the reference's value first.
std::string differences_text(std::span<const ConfigDifference> differences);

}  // namespace lockstep
