#pragma once
// Whether a planted fault has acted: did anything come out of it otherwise than it went in?

#include <memory>
#include <string>
#include <vector>

#include "scenarios/mutants/planted.h"

namespace lockstep {

/// What can tell which of the planted faults behind it have acted.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Keys of those that have changed something so far: "mutant", "second_mutant".
  virtual std::vector<std::string> acted() const = 0;
};

/// The fault itself with every call passed on, and noted where what comes back has other bits than what went
/// in, or another graph behind it. `key` is the config's: "mutant" or "second_mutant".
std::unique_ptr<Mutant> make_witness(std::unique_ptr<Mutant> fault, const Planting& planting,
                                     const std::string& key);

/// The same for what make_mutant returned, which may be null.
std::vector<std::string> acted_faults(const Mutant* mutant);

}  // namespace lockstep
