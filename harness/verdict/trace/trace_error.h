#pragma once
// What is thrown for a trace that cannot be read.

#include <stdexcept>

namespace lockstep {

/// Not a trace, a version that this build does not know, or a frame whose checksum is wrong: file, offset,
/// reason.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep
