#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/judge/trace/record.h"
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
  /// The next whole step too, but only its gradients' norms: no records are made, which is
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

/// Reads the trace that `rank` of the run with that config hash must have left whole, frame by frame. Returns
/// what is wrong with it, file and offset first: damage, an end before the end mark, another run's trace.
/// Empty if nothing is wrong.
std::string trace_problem(const std::string& path, const std::string& config_hash, int rank);

Trace read_trace(const std::string& path);
/// The same from memory (fuzzing, tests).
Trace read_trace_bytes(std::span<const std::byte> bytes, const std::string& name);

// From the payload of a step's frame to records; every length is checked before it is believed.

/// Takes little-endian values from a payload; throws TraceError naming the place when it does not hold them.
class ByteCursor {
 public:
  /// `place`: in words, asked for if something is wrong.
  ByteCursor(std::string_view bytes, std::function<std::string()> place) : bytes_(bytes), place_(std::move(place)) {}
  [[noreturn]] void fail(const std::string& reason) const;
  std::size_t left() const { return bytes_.size(); }
  std::string_view take(std::size_t size);
  template <typename T>
  T raw() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  uint64_t varint();
  std::string_view text();
  std::vector<int64_t> ids();

 private:
  std::string_view bytes_;
  std::function<std::string()> place_;
};

/// Definitions and sequences so far; each step's frame may add to them.
class StepDecoder {
 public:
  StepDecoder(int rank, int world_size) : rank_(rank), world_size_(world_size) {}
  StepRecords decode(ByteCursor& in);
  /// A step that `decode` made and nobody needs any more: if the next one has the same definitions, its records are filled again.
  void take_back(StepRecords used) { used_ = std::move(used); }
  /// Takes only the norms of gradients from the same bytes.
  GradientNorms decode_gradient_norms(ByteCursor& in);

 private:
  struct Known {
    RecordKind kind;
    bool has_ids = false, has_payload = false, has_dot = false;
    std::size_t payload_bytes = 0;
    Record prototype;  ///< what all its records have in common
  };
  static Known decode_definition(ByteCursor& in);
  static std::shared_ptr<const Placement> decode_placement(ByteCursor& in, const std::vector<int64_t>& shape);
  struct Sequence {
    std::vector<uint32_t> definitions;
    uint32_t number = 0;  ///< in the file
    bool has_parts = false;  ///< a record has a placement: who reads the step may put parts together
  };
  Sequence decode_sequence(ByteCursor& in);
  /// The definitions of the step's records, in their order; they may be new in this frame.
  const Sequence& sequence_of(ByteCursor& in);
  void add_record(ByteCursor& in, const Known& known, GradientNorms& to);
  /// Sets all that is not of the definition, but values only where `with_values`.
  void fill(Record& record, ByteCursor& in, const Known& known, bool with_values = true) const;
  uint64_t samples_hash(const std::vector<int64_t>& ids) const;

  int rank_, world_size_;
  std::vector<Known> known_;
  std::vector<Sequence> sequences_;
  StepRecords used_;
  Record passing_;  ///< what norms are taken from
};

}  // namespace lockstep
