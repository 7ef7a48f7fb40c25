#pragma once
// The ledger of collectives: a decorator that records what went in and what came out, and beats before it
// waits.

#include <functional>
#include <memory>

#include "harness/comm/comm.h"
#include "harness/trace/writer.h"

namespace lockstep {

/// Told the operation ("all_gather loss.rows") before a rank waits in it.
using Beat = std::function<void(const std::string& operation)>;

/// Wraps `inner`. `trace` must outlive the result; records are written in call order.
std::unique_ptr<Comm> make_ledger_comm(std::unique_ptr<Comm> inner, TraceWriter& trace, Beat beat);

}  // namespace lockstep
