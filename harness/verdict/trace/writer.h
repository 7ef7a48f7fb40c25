#pragma once
// The append-only, framed, checksummed trace of one rank.

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "harness/base/files.h"
#include "harness/verdict/trace/format.h"
#include "harness/verdict/trace/header.h"
#include "harness/verdict/trace/record.h"

namespace lockstep {

/// Is a value this rank's own, or one that all ranks hold alike (and rank 0 writes out for all)?
enum class Sharing { own, replicated };

/// How much of a tensor to keep. `by_level` follows the trace's level; `whole` keeps the values at any level
/// but `off`.
enum class Keep { by_level, whole };

/// Writes records in call order; a step becomes one frame on disk when it ends. At level `off` every call
/// returns at once and no file is made. Throws MachineError (disk full) naming the file.
class TraceWriter {
 public:
  /// `part_bytes`: a step of more than that goes to disk in several frames; no frame may have 4 GiB.
  TraceWriter(const std::string& path, const TraceHeader& header, Files& files = real_files(),
              std::size_t part_bytes = kMostPartBytes);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  bool enabled() const;
  TraceLevel level() const;
  /// Are a tensor's values kept that asks for `keep`, on rank 0 at least?
  bool keeps_whole(Keep keep) const { return keep == Keep::whole || level() == TraceLevel::full; }

  void begin_step(int64_t step);
  void samples(std::span<const int64_t> ids);
  /// A random stream: `hash` adds up over ranks for streams keyed by sample, `draws` is how many numbers were
  /// taken.
  void random(std::string_view stream, uint64_t hash, uint64_t draws);
  void scalar(Phase phase, std::string_view name, double value, Sharing sharing);
  /// `ids`: sample ids of the rows of a row-sharded tensor, or empty. A tensor with a placement is a rank's own part of it.
  TensorStats tensor(Phase phase, std::string_view name, const TensorView& tensor, Sharing sharing,
                     std::span<const int64_t> ids = {}, Keep keep = Keep::by_level);
  void collective(const CollectiveRecord& record);
  void end_step();
  /// A whole step as a reader gave it: its bytes are those that the writer of that trace wrote.
  void copy(const StepRecords& step);
  /// Between two steps: every call until `go_on` returns at once, as at level `off`.
  void pause();
  void go_on();
  /// Writes what is left and the end mark: a trace without it was cut short.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::unique_ptr<Impl> paused_;
};

}  // namespace lockstep
