#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/answer/results/results.h"

// What loaders were asked for, by rank and fetch: do the ranks share out the reference's rows?

namespace lockstep {

/// One thing that a step does, over all steps.
struct LedItem {
  std::string name;  ///< "rows", "start weights", "loss", "reduction", "gradients", "clip", "rate", "update",
                     ///< "buffers", "replicas"
  Mark state = Mark::none;
  int64_t steps = 0;       ///< at which it was compared
  int64_t first = -1;      ///< of `different` and `undecided`: the step
  int rank = kAllRanks;    ///< the one rank that differs
  std::string where = {};  ///< tensor
  std::string text = {};   ///< in words; of what agrees too where there is something to say
  std::string code = {};   ///< the cause, where it is clear from this alone
};

/// A rank's rows.json: what its loaders were asked for, and what steps began with that is in no trace. An empty object:
/// there is none.
nlohmann::json rows_of(const std::string& dir, int rank);

struct TracedRanks {
  const std::string& dir;
  int count;
};

/// Judges the loaders of both one by one, up to the first difference. `takers`: so many of the run's ranks share out a
/// step's rows. `steps`: that were recorded.
void judge_rows(const TracedRanks& reference, const TracedRanks& run, int takers, int64_t steps, LedItem& item);

// A run that its reference leads: each step begins with the reference's state and with its rows, so that every step can be judged by itself.

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

// lockstep check --resumed: a run that was stopped and resumed, against one that went through.

/// A run that its trainer resumed, against what it was stopped with and against a run that went through. Steps are the whole run's.
struct ResumedFindings {
  std::vector<LedItem> items;     ///< states that a trainer has to save, and after them what the steps computed; those that differ in the order of their weight
  std::vector<std::string> lost;  ///< names of the states that differ and are no consequence of another
  int64_t stopped = 0;            ///< the step that would have begun when the run was stopped
  int64_t begins = 0;             ///< the step whose beginning the resumed run's first one is
  int64_t steps = 0;              ///< that were compared
  bool anew = false;              ///< it begins as the run had begun: nothing was loaded
  int64_t chance = -1;            ///< the first step at which the run that was stopped differs from the whole one by itself
  std::string chance_text = {};   ///< what differs there
  bool unseeded = false;          ///< two runs begin with other weights

  const LedItem* find(const std::string& name) const;
};

/// All three are folders of runs that LOCKSTEP_STOP ended. Throws TraceError.
ResumedFindings judge_resumed(const std::string& whole, const std::string& stopped, const std::string& resumed);

}  // namespace lockstep
