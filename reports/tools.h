#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// What other tools open: numbers by step and texts for TensorBoard and W&B, calls by rank for viewers of Chrome traces.

namespace lockstep {

struct ToolRun {
  std::string name;
  std::map<std::string, std::map<int64_t, double>> scalars;  ///< by tag and step
  std::map<std::string, std::string> texts;                  ///< by tag, in Markdown
};

/// A file of events: records of TFRecord, each an Event. `seconds`: since 1970, of all of them.
std::string tensorboard_events(const ToolRun& run, double seconds);
/// What `python -m lockstep_probe.wandb` reads.
std::string tool_json(const std::vector<ToolRun>& runs);

/// CRC-32C (Castagnoli) of bytes.
uint32_t crc32c(std::string_view bytes);

/// A collective of a rank, or one of its steps.
struct ToolCall {
  std::string run, name, what;
  int rank = 0;
  int64_t step = 0;
  double begin_us = 0, us = 1;
};
/// Trace-event JSON: a process for each run, a thread for each rank.
std::string chrome_trace(const std::vector<ToolCall>& calls);

}  // namespace lockstep
