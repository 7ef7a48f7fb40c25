#pragma once
// Why an exchange gave nothing, and what an audit found.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/numbers.h"

namespace lockstep::rewards {

/// Why an exchange gave nothing: the same code on every rank that is left, and nothing was changed by it.
struct Failure {
  std::string code;  ///< "score-threw"; empty: none
  std::string sentence;
  explicit operator bool() const { return !code.empty(); }
};

/// What an audit found: one cause, or several between which what ranks show cannot decide.
struct Finding {
  std::string code;               ///< of causes()
  std::vector<std::string> also;  ///< codes that fit what is shown as well
  int64_t step = 0;
  std::vector<int> ranks;  ///< ascending; the first one is named in the sentence
  std::string sentence;    ///< step, rank, element, expected and found
};

struct Cause {
  std::string_view code;
  std::string_view help;  ///< what was done wrong, in a few words
};
/// Every cause that an audit names, and every code of a Failure.
std::span<const Cause> causes();
/// Help of a code; it must be one of them.
std::string_view help_of(std::string_view code);

/// Adds `finding`. If one of its candidates explains another finding of the step as well, the two become one, with the
/// candidates that explain both: one cause for all ranks, where there is one.
void add(std::vector<Finding>& findings, Finding finding);

/// "rank 3", "ranks 1, 2 and 3".
std::string ranks_in_words(const std::vector<int>& ranks);

/// All digits of a double that its bits need; "nan (rank 2's poison of step 17)" for poison.
std::string number_in_words(double value);

/// What a rank holds before rewards come: a NaN that says whose it is and of which step.
double poison(int rank, int64_t step);
/// Of a value that `poison` gave.
struct Poisoned {
  int rank = 0;
  int64_t step = 0;  ///< modulo 2^32
};
bool is_poison(double value, Poisoned& whose);

using lockstep::same_bits;
/// The same of each value.
bool same_bits(std::span<const double> a, std::span<const double> b);

}  // namespace lockstep::rewards
