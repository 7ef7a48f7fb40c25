#pragma once
// Real ranks: one process each, over Gloo.

#include <memory>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/comm/gloo_options.h"

namespace lockstep {

/// Meets the other ranks. Throws std::runtime_error when they do not come within the timeout.
std::unique_ptr<Comm> make_gloo_comm(const GlooOptions& options);

}  // namespace lockstep
