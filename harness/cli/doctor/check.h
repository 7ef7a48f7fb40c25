#pragma once
// One line of `lockstep doctor`.

#include <string>

namespace lockstep {

struct Check {
  enum class State { ok, note, failed } state = State::ok;  ///< note: works, but somebody should know
  std::string name, text;
};

}  // namespace lockstep
