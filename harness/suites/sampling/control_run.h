#pragma once
// A small run of which only the control plane is real: ranks on a scheduler that take steps, merge statistics and
// decide from them, with the guard before each step's collectives, and with the mistakes that people make.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "harness/lib/data/sharding/control_guard.h"

namespace lockstep::sampling {

enum class ControlMistake {
  none,
  stop_alone,          ///< the victim stops early by its own validation
  epoch_off,           ///< the victim counts its epoch one further
  rate_local_kl,       ///< every rank sets its rate from its own KL
  rate_local_success,  ///< … from its own successes
  step_off,            ///< the victim counts a step twice
  offset_off,          ///< the victim draws four numbers more
  scale_off,           ///< the victim lowers its loss scale by its own overflow
  merge_interval,      ///< the victim merges successes every 4 steps and not every 3
  no_sync,             ///< the victim takes no part in the gradients' collective
  own_gradient,        ///< the victim takes part in it and applies its own gradient
  leaves,              ///< the victim's process ends
};

struct ControlRow {
  ControlMistake mistake = ControlMistake::none;
  std::string_view name, words;
  std::string_view code;    ///< what the guard must name
  int after = 0;            ///< steps from the mistake to the one before which it must be named
  bool everywhere = false;  ///< all ranks make it; then the first that differs from rank 0 is named
};
/// All of them but `none`.
std::span<const ControlRow> control_rows();

struct ControlCase {
  int ranks = 3;
  int victim = 0;
  ControlMistake mistake = ControlMistake::none;
  int64_t at = 3;  ///< the step at which the mistake is made
  int64_t steps = 20;
  uint64_t seed = 0;
  bool guarded = true;
};

struct ControlEnd {
  sharding::ControlVerdict verdict;  ///< of the guard; empty if it never complained
  bool told_alike = true;            ///< every rank that lived was told the same
  bool stalled = false;              ///< ranks waited for one that did not come
  std::string problem;               ///< what a collective came to, if it did not come to its end
  bool replicas_equal = true;        ///< at the end
  double parameter = 0;              ///< of the first rank that lived: a sum of its parameters
  int64_t steps = 0;                 ///< that it took
};
ControlEnd run_control(const ControlCase& each);

}  // namespace lockstep::sampling
