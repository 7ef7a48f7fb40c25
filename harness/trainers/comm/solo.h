#pragma once
// One process: every collective is the identity.

#include <memory>

#include "harness/trainers/comm/comm.h"

namespace lockstep {

std::unique_ptr<Comm> make_solo_comm();

}  // namespace lockstep
