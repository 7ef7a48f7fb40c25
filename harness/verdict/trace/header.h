#pragma once
// What a trace says of itself first, and its frame as JSON text.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "harness/verdict/config/trace_level.h"
#include "harness/verdict/trace/declared.h"

namespace lockstep {

struct TraceHeader {
  std::string config_hash;
  int rank = 0;
  int world_size = 1;
  std::string trainer;
  TraceLevel level = TraceLevel::hash;
  std::string started_by;  ///< "emulated", "real", "replay", or the name of another tracer
  std::shared_ptr<const Declared> declared = {};  ///< null: nothing
};

std::string header_to_json(const TraceHeader& header);

/// Nothing if the text is not such a header; `why` then says what is wrong with it.
std::optional<TraceHeader> header_from_json(std::string_view text, std::string& why);

}  // namespace lockstep
