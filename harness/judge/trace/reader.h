#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/judge/trace/writer.h"

// Reads traces, whole or cut short, and refuses corrupt ones by name.

namespace lockstep {

struct Trace {
  std::string path;
  TraceHeader header;
  std::vector<StepRecords> steps;
  std::optional<StepRecords> partial;  ///< the step in which the rank threw, as far as it got
  bool finished = false;               ///< the end mark was there
  uint64_t valid_bytes = 0;            ///< length of the readable part
  uint64_t file_bytes = 0;
  std::string end;  ///< if not finished, where and how it ends, in words
};

/// Reads frame after frame, so that long traces need not be held in memory.
class TraceReader {
 public:
  explicit TraceReader(const std::string& path);  ///< throws TraceError
  /// The same from memory, which must outlive the reader; `name` stands for the path in messages.
  TraceReader(std::span<const std::byte> bytes, const std::string& name);
  ~TraceReader();
  TraceReader(TraceReader&&) noexcept;
  TraceReader& operator=(TraceReader&&) noexcept;
  const TraceHeader& header() const;
  /// The next whole step, or nothing at the end. A frame cut short ends the trace; a wrong checksum throws
  /// TraceError.
  /// `used`: a step that this reader has given and nobody needs any more; its memory serves the next one.
  std::optional<StepRecords> next(StepRecords used = {});
  /// Goes on to the end, for what is damaged alone.
  void read_to_end();
  bool finished() const;
  /// After the end: the step in which the rank threw, as far as it got.
  const std::optional<StepRecords>& partial() const;
  uint64_t valid_bytes() const;  ///< read so far and whole
  uint64_t file_bytes() const;   ///< when the reader was made
  std::string end() const;       ///< in words, once next() gave nothing

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads the trace that `rank` of the run with that config hash must have left whole, frame by frame. Returns
/// what is wrong with it, file and offset first: damage, an end before the end mark, another run's trace.
/// Empty if nothing is wrong.
std::string trace_problem(const std::string& path, const std::string& config_hash, int rank);

Trace read_trace(const std::string& path);
/// The same from memory (fuzzing, tests).
Trace read_trace_bytes(std::span<const std::byte> bytes, const std::string& name);

}  // namespace lockstep
