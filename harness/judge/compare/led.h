#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/compare/loader_rows.h"

// A run that its reference leads: each step begins with the reference's state and with its rows, so that every step can
// be judged by itself.

namespace lockstep {

struct LedStep {
  int64_t step = 0;
  double expected_loss = std::numeric_limits<double>::quiet_NaN(), loss = std::numeric_limits<double>::quiet_NaN();
  double gradients = std::numeric_limits<double>::quiet_NaN();  ///< distance of the gradients before clipping, relative
                                                                ///< to the reference's
  double applied = std::numeric_limits<double>::quiet_NaN();    ///< and of those that the optimizer took
};

struct LedFindings {
  std::vector<LedItem> items;  ///< in the order of a step
  std::vector<LedStep> steps;
  std::string problem = {};  ///< why nothing, or not all, could be led
  std::vector<std::string> narrow = {};  ///< what computed in a narrower type than float64
  int64_t micro_steps = 1;               ///< of the run, as many times the reference's

  /// What differs first: the item of the earliest step, of one step the earliest item. Null: nothing does.
  const LedItem* different() const;
  const LedItem* undecided() const;
};

/// Both are folders of traces, in float64 unless `bounds` are of another precision, and the run was led by the
/// reference. A distance up to `same` counts as none, one beyond `different` as a difference; what lies between, or
/// comes from a narrower type, decides nothing. Throws TraceError.
struct LedBounds {
  double same = 1e-12, different = 1e-6;
};
LedFindings judge_led(const std::string& reference, const std::string& run, LedBounds bounds = {});

/// The steps alone, of runs in any precision.
std::vector<LedStep> led_steps(const std::string& reference, const std::string& run);

// Why a led run differs, shown by one more run in which one thing is otherwise.

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
