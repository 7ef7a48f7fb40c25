#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "harness/trainers/comm/comm.h"

// A decorator that lets ranks compare what they are about to call before anything of it moves.

namespace lockstep {

/// Before each collective every rank sends a header of a fixed size: operation, reduction, root, type, shape, step, tag and its
/// number in this communicator. Where headers differ, every rank throws the same std::runtime_error, which names the ranks that
/// differ from most, their call and that of the others; of equally many it names those without rank 0. One more all-gather of
/// 256 bytes a collective. Rows that are gathered by gather_rows may differ in number: they are padded before they are sent.
std::unique_ptr<Comm> make_checked_comm(std::unique_ptr<Comm> inner, std::function<int64_t()> step);

// One process: every collective is the identity.

std::unique_ptr<Comm> make_solo_comm();

}  // namespace lockstep
