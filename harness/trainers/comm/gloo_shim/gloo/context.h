#pragma once

#include <chrono>

namespace gloo {

namespace transport {
class UnboundBuffer;
}

/// Declared as far as ProcessGroupGloo.hpp calls it; the code is in libtorch_cpu.so.
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
