#pragma once
// What stands of each row in the trace beside its loss: one record of rows by columns, so that a comparison can tell the
// rollout from its score, its log-probabilities and its advantage.

#include <cstdint>
#include <string>

#include "scenarios/flow_rl/config.h"

namespace lockstep {

/// Kinds of columns, in the order in which a step makes them.
enum class TermKind : int64_t {
  chosen,     ///< log pi of a transition as the rollout drew it: of its noise and its deviation alone
  action,     ///< mean over a chunk's actions as they were taken
  reward,     ///< as this rank has it after the exchange
  cost,       ///< the same of the second score
  success,    ///< 0 or 1
  old_log_pi, ///< log pi of a transition under the policy that the rollout was made by, as the loss takes it
  log_pi,     ///< the same under the policy that is trained
  kl,         ///< of a chunk, to the cloned policy
  advantage,
};
inline constexpr int64_t kTermKinds = 9;

/// A column's name in a trace: kind, chunk and transition; 0 where a kind has none.
struct Term {
  TermKind kind = TermKind::chosen;
  int64_t chunk = 0, transition = 0;
  bool operator==(const Term&) const = default;
};
constexpr int64_t column_of(const Term& term) {
  return static_cast<int64_t>(term.kind) * 1000000 + term.chunk * 100 + term.transition;
}
constexpr Term term_of(int64_t column) {
  return {static_cast<TermKind>(column / 1000000), column % 1000000 / 100, column % 100};
}

/// "advantage", "log-probability, chunk 3, transition 2": the column in words.
std::string term_words(int64_t column);

}  // namespace lockstep
