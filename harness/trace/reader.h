#pragma once
// Reads traces, whole or cut short, and refuses corrupt ones by name.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/trace/record.h"
#include "harness/trace/writer.h"

namespace lockstep {

/// Not a trace, a version that this build does not know, or a frame whose checksum is wrong: file, offset,
/// reason.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct StepRecords {
  int64_t step = 0;
  std::vector<Record> records;  ///< in the order in which they were written
};

/// Lengths of one rank's gradients at a step, over all parameters; all that a noise scale takes of a trace.
struct GradientNorms {
  int64_t step = 0;
  std::vector<int64_t> ids;                     ///< samples of this rank's rows
  double local_squared = 0;                     ///< sum of squares, before any reduction
  double reduced_squared = 0;                   ///< the same of the reduced gradients
  bool has_local = false, has_reduced = false;  ///< false: the trace keeps no lengths of them
  uint64_t nonfinite = 0;                       ///< values that the sums leave out
};

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
  std::optional<StepRecords> next();
  /// The next whole step as well, of which only the gradients' lengths are taken: no record is made, which is
  /// many times as fast.
  std::optional<GradientNorms> next_gradient_norms();
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

/// Reads the trace that `rank` of the run with that config hash must have left whole, frame by frame. What is
/// wrong with it, file and offset first: damage, an end before the end mark, another run's trace. Empty if
/// nothing is.
std::string trace_problem(const std::string& path, const std::string& config_hash, int rank);

Trace read_trace(const std::string& path);
/// The same from memory (fuzzing, tests).
Trace read_trace_bytes(std::span<const std::byte> bytes, const std::string& name);

}  // namespace lockstep
