#pragma once
// The readers that are fuzzed.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// 0: the bytes were read, -1: refused.
using Reader = int (*)(const uint8_t* data, std::size_t size);

/// config, flight, trace, ts, or planted, which has a fault; null for another name.
Reader reader_named(std::string_view name);

/// Writes the seeds of the reader of traces into a folder: tiny traces of the present format, whole and damaged.
void write_trace_corpus(const std::string& path);

}  // namespace lockstep
