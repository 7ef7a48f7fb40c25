#pragma once
// What an audit saw that should not be.

#include <string>

namespace lockstep::sharding {

struct Finding {
  std::string code;      ///< "order_repeats"; empty: nothing was found
  std::string sentence;  ///< where, what was expected, what was found
  explicit operator bool() const { return !code.empty(); }
};

}  // namespace lockstep::sharding
