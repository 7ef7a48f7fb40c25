#pragma once
// Finds gradients that are not finite before anybody takes an update from them, and lets all ranks know the same of it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/trainers/comm/comm.h"

namespace lockstep {

/// The first number of a rank's own gradients that is not finite.
struct NotFinite {
  int rank = 0;
  std::size_t tensor = 0;   ///< index into the parameter list
  int64_t index = 0;        ///< of the element, in the order of the tensor's rows
  double value = 0;         ///< NaN or an infinity
  int ranks = 1;            ///< how many ranks have such a number
};

/// Watches one rank's own gradients of one step.
class GradientGuard {
 public:
  /// Forgets what it saw: a step begins.
  void begin();
  /// A gradient of this rank before anything is added to it; the first number that is not finite counts.
  void look(std::size_t tensor, const at::Tensor& gradient);
  /// Collective: what the lowest rank has seen that saw anything; the same on all ranks. Nothing: all are finite.
  std::optional<NotFinite> agree(Comm& comm) const;

 private:
  std::optional<NotFinite> own_;
};

/// "rank 3: the gradient of head.weight is NaN at element 17 (step 5)"
std::string in_words(const NotFinite& found, const std::vector<std::string>& names, int64_t step);

}  // namespace lockstep
