#pragma once
// Where a planted fault may act. The normal path has none.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

/// A planted bug; scenarios/mutants holds one file each. Calls come from the rank's own thread.
class Mutant {
 public:
  virtual ~Mutant() = default;
  /// Before anything of a step happens.
  virtual void before_step(int64_t /*step*/) {}
  /// A parameter's gradient on this rank, before any reduction; returns what takes its place.
  virtual at::Tensor local_gradient(int64_t /*step*/, const std::string& /*parameter*/,
                                    const at::Tensor& gradient) {
    return gradient;
  }
};

}  // namespace lockstep
