#pragma once

#include <functional>
#include <optional>
#include <string>

#include "harness/judge/compare/led.h"

// Why a led run differs, shown by one more run in which one thing is otherwise.

namespace lockstep {

/// A run or a reference again, with one thing otherwise: variables of the probe's, "GATHER=own-first".
struct OtherRun {
  std::string id;
  bool of_reference = false;
  std::string variables;
};

struct OtherwiseInputs {
  std::string reference, run;  ///< folders of the two, in float64
  const LedFindings& found;
  /// Makes the run: its folder; nothing if it failed.
  std::function<std::optional<std::string>(const OtherRun&)> make;
  enum class Tried { norm, first, rest } tried = Tried::rest;  ///< which hypotheses
};

struct Otherwise {
  std::string code, because;
  LedFindings agrees = {};   ///< that run's, or against that reference
  bool other_rows = false;  ///< no difference is shown: the program has chosen other rows by itself
};

/// Tries one hypothesis after the other; the first whose run agrees in all that is judged explains the difference.
/// Nothing: none does.
std::optional<Otherwise> explain_otherwise(const OtherwiseInputs& inputs);

}  // namespace lockstep
