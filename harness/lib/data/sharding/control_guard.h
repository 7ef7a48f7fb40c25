#pragma once
// What steers a step (its number, the epoch, the learning rate, whether to stop) must be the same on every
// rank before the first collective of the step: else one rank enters a collective that another never comes
// to.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/checkpoint/group.h"

namespace lockstep::sharding {

/// The control values of one rank at one step, in the order in which they are to be named if several differ.
class Controls {
 public:
  void add(std::string name, int64_t value);
  void add(std::string name, bool value);
  /// Compared by its bits.
  void add(std::string name, double value);
  /// Of what is too long to be sent: parameters, a permutation.
  void add_hash(std::string name, uint64_t hash);
  struct Value {
    std::string name, text;
  };
  const std::vector<Value>& values() const { return values_; }

 private:
  void add_text(std::string name, std::string text);
  std::vector<Value> values_;
};

/// What came of one comparison; the same on every rank.
struct ControlVerdict {
  /// Empty: all agree. "learning_rate_differs"; "group_broken".
  std::string code;
  std::string name;  ///< of the first value that differs
  int rank = -1;     ///< the first one that has not what most have; of a draw, what rank 0 has counts
  int64_t step = 0;  ///< that most ranks are at
  std::string expected, found;
  std::string sentence;  ///< all of this, and what would have come of it
  explicit operator bool() const { return code.empty(); }
};

/// Compares before the step's collectives. While all agree: one gather of 16 characters a step. Where they do
/// not: one more, of the values, so that each rank can name what differs.
class ControlGuard {
 public:
  /// The group is the guard's own.
  ControlGuard(checkpoint::Group& group, double deadline_s) : group_(group), deadline_s_(deadline_s) {}
  /// `step` is the rank's own count, and the first value compared.
  ControlVerdict check(int64_t step, const Controls& controls);

 private:
  checkpoint::Group& group_;
  double deadline_s_;
};

}  // namespace lockstep::sharding
