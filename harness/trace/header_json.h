#pragma once
// The header frame of a trace as JSON text.

#include <optional>
#include <string>
#include <string_view>

#include "harness/trace/writer.h"

namespace lockstep {

std::string header_to_json(const TraceHeader& header);

/// Nothing if the text is not such a header; `why` then says what is wrong with it.
std::optional<TraceHeader> header_from_json(std::string_view text, std::string& why);

}  // namespace lockstep
