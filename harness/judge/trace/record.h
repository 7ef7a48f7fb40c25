#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// What a rank saw at a step: the records of a trace, as writer and reader share them.

namespace lockstep {

/// Where in a step something was seen, in the order in which it happens.
enum class Phase : uint8_t {
  snapshot,  ///< parameters before the step, kept whole
  samples,   ///< sample ids of this rank's rows
  random,    ///< keys and positions of the random streams
  control,   ///< learning rate and other control values
  scores,  ///< of each row for each column: energies of candidates, logits of classes; traces call them "energies"
  loss,
  local_gradients,    ///< before any reduction
  collective,         ///< one entry of the ledger
  reduced_gradients,  ///< after the mean over ranks, before clipping
  gradient_norm,
  parameters,  ///< after the update
  evaluation,
  term_sums,  ///< size of the terms that make each gradient, by element; forced references alone
  applied_gradients,  ///< what the optimizer took: after clipping, before parameters
  optimizer_state,    ///< after the update, as are parameters
  inputs,             ///< what the rows hold, by sample id; after random streams
  gradient_parts,     ///< of a rank's own gradient, by micro-step or named loss; before local gradients
  averaged_weights,   ///< an average of the parameters; after the update
};
inline constexpr Phase kLastPhase = Phase::averaged_weights;
const char* name_of(Phase phase);
/// Where in a step a phase happens, tenfold, so that something can stand between two. Numbers of phases are those of
/// the file, where new ones can only be added at the end.
int place_of(Phase phase);
/// All phases in the order in which they happen.
std::span<const Phase> phases_in_order();

enum class DType : uint8_t { float32, float64, int64, bfloat16, boolean, float16, int32 };
inline constexpr DType kLastDType = DType::int32;
std::size_t size_of(DType dtype);
const char* name_of(DType dtype);

/// The number that sixteen bits of IEEE 754 binary16 are.
double value_of_float16(uint16_t bits);

/// A fingerprint and four statistics of a tensor's values.
struct TensorStats {
  uint64_t hash = 0;  ///< sees value, order and position; hashes of disjoint row shards add up (mod 2^64)
  double norm = 0;    ///< L2, over finite values
  double min = 0, max = 0;  ///< over finite values; 0 if there is none
  uint64_t nonfinite = 0;
  bool operator==(const TensorStats&) const = default;
};

/// Which part of a tensor a rank holds.
struct Placement {
  bool shard = false;  ///< else the whole: every rank holds the same
  std::vector<int64_t> whole, offset;  ///< by dimension: the extent of the whole, and where the part begins in it
  bool operator==(const Placement&) const = default;
};

/// A dense tensor as the tracer sees it.
struct TensorView {
  const void* data = nullptr;  ///< contiguous, row-major
  DType dtype = DType::float32;
  std::span<const int64_t> shape;
  /// Global position of each row (dimension 0) of a row-sharded tensor, so that shards' hashes add up to the
  /// whole's (hashed with positions 0, 1, 2, …); empty: the tensor is hashed as one piece, which is faster.
  std::span<const int64_t> row_positions;
  /// Of a part of a gradient: the rank's local gradient of the same parameter, of the same form; null: none is known.
  const void* dot_with = nullptr;
  /// Null: nothing is said of it. Rows then have positions from offset[0] on, and `row_positions` is not looked at.
  const Placement* placement = nullptr;
  int64_t elements() const;
};

/// One pass over the tensor. Bits of the result do not depend on the instruction set. Any one changed bit
/// changes the hash with certainty; a tensor whose dimension 0 is empty has hash 0.
TensorStats tensor_stats(const TensorView& tensor);
/// Its hash alone, in half the time.
uint64_t tensor_hash(const TensorView& tensor);

/// One collective as the ledger saw it.
struct CollectiveRecord {
  std::string op;         ///< all_reduce, all_gather, broadcast, barrier, reduce_gradients
  std::string reduction;  ///< sum, mean, or empty
  std::string group;      ///< data, gradients
  std::string tag;        ///< what the caller says it is for: "loss.candidates", "bucket 2"
  int root = -1;
  DType dtype = DType::float32;
  std::vector<int64_t> shape;
  uint64_t hash_in = 0, hash_out = 0;
  bool operator==(const CollectiveRecord&) const = default;
};

/// What a record's hash is of: the tensor in one piece, its rows one by one, or the parts that ranks hold of it. Two hashes
/// can be compared if they are of one kind.
enum class Hashed : uint8_t { whole, rows, parts };

/// One record as the reader gives it.
struct Record {
  int64_t step = 0;
  Phase phase = Phase::samples;
  std::string name;  ///< parameter, stream, control value or metric
  DType dtype = DType::float32;
  std::vector<int64_t> shape;
  bool replicated = false;  ///< written as equal on all ranks
  bool has_stats =
      false;          ///< false: only the hash was kept (a value that is equal on all ranks, not on rank 0)
  TensorStats stats;  ///< of tensors; stats.hash also of samples and random streams
  bool is_scalar = false;
  double dot = std::numeric_limits<double>::quiet_NaN();  ///< of parts of a gradient with statistics: with the local gradient; NaN: not kept
  double value = 0;                ///< of scalars; of random streams the count of numbers drawn
  std::vector<int64_t> ids;        ///< sample ids (samples; rows of energies)
  std::vector<std::byte> payload;  ///< raw values, if the level kept them
  CollectiveRecord collective;     ///< phase == collective alone
  Hashed hashed = Hashed::whole;
  std::shared_ptr<const Placement> placement = {};  ///< null: the tracer says nothing of it
};

struct StepRecords {
  int64_t step = 0;
  std::vector<Record> records;  ///< in the order in which they were written
  /// By which sequence of definitions a reader has made them, so that it can fill them again; 0: of none, or they were changed since.
  uint32_t filled_by = 0;
};

// The values that a record kept, as numbers.

/// Of a tensor of that shape; -1 if it is an impossible one.
int64_t elements_of(const std::vector<int64_t>& shape);

/// How far norms, smallest and largest elements lie apart at most; infinite where only one of two is a number.
double apart(const TensorStats& a, const TensorStats& b);

/// Did it keep all its values?
bool keeps_values(const Record& record);
/// The values of a tensor's record, whatever their type; nothing if it did not keep them all.
std::optional<std::vector<double>> values_of(const Record& record);

/// Of a record of int64.
std::vector<int64_t> whole_numbers_of(const Record& record);

/// The distance of 1 from the next number of that type; of whole numbers 0.
double epsilon_of(DType dtype);
bool is_floating(DType dtype);

/// Did both keep their values, and are these equal as numbers? Bits may differ then in signs of zeros alone.
bool equal_as_numbers(const Record& a, const Record& b);

}  // namespace lockstep

// The two builds of tensor_stats, so that a test can hold them against each other.

namespace lockstep::detail {

/// tensor_stats with the instructions that every machine of this kind has.
TensorStats tensor_stats_portable(const TensorView& tensor);

/// tensor_stats with AVX2; falls back to the portable one where the processor lacks it.
TensorStats tensor_stats_avx2(const TensorView& tensor);

bool has_avx2();

}  // namespace lockstep::detail

// The bytes of a trace, as writer and reader share them; docs/trace.md describes them in words.

namespace lockstep {

inline constexpr char kTraceMagic[8] = {'L', 'S', 'T', 'R', 'A', 'C', 'E', '\n'};
inline constexpr uint32_t kTraceVersion = 2, kOldestTraceVersion = 1;  ///< written; read: all from the oldest on
inline constexpr std::size_t kFilePrefixBytes = sizeof kTraceMagic + sizeof kTraceVersion;

inline constexpr std::size_t kMaxTextBytes = 1024;  ///< of a name, tag or group
inline constexpr std::size_t kMaxDimensions = 16;

/// A frame: u32 payload length, u8 type, u24 check of those five bytes, payload, u64 XXH3 of all before it.
inline constexpr std::size_t kFrameHeadBytes = 8;
inline constexpr std::size_t kFrameTailBytes = 8;

/// A step of more than one frame has step_part frames before its step frame; each begins with the step's number.
enum class FrameType : uint8_t { header = 1, step = 2, partial_step = 3, end = 4, step_part = 5 };
/// What a part of a step holds at most, but for its last record: each rank that writes or is read has a part in memory.
inline constexpr std::size_t kMostPartBytes = std::size_t{16} << 20;
enum class RecordKind : uint8_t { samples, random, scalar, tensor, collective };

/// What the records of one name, dtype and shape have in common: written once, then named by its number.
struct Definition {
  RecordKind kind = RecordKind::samples;
  Phase phase = Phase::samples;
  bool replicated = false;
  bool has_stats = false, has_ids = false, has_payload = false, has_dot = false;  ///< of tensors
  const Placement* placement = nullptr;                                           ///< of tensors; null: none
  DType dtype = DType::float32;
  int64_t root = -1;  ///< of collectives
  std::span<const int64_t> shape = {};
  std::string_view name = {};  ///< of collectives: the operation
  std::string_view reduction = {}, group = {}, tag = {};
};

/// Eight bytes of frame head for a payload of that length.
uint64_t frame_head(uint32_t payload_bytes, FrameType type);

/// Are norm, minimum and maximum of this dtype kept as float32? The extremes lose nothing, the norm its last
/// digits.
inline bool fits_float32(DType dtype) {
  return dtype != DType::float64 && dtype != DType::int64 && dtype != DType::int32;
}

inline uint64_t zigzag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
inline int64_t unzigzag(uint64_t value) { return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1)); }

/// Appends little-endian values to a buffer.
class ByteSink {
 public:
  explicit ByteSink(std::string& out) : out_(out) {}
  template <typename T>
  void raw(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void varint(uint64_t value) {
    while (value >= 0x80) {
      out_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    out_.push_back(static_cast<char>(value));
  }
  void text(std::string_view value) {
    varint(value.size());
    out_.append(value);
  }
  void bytes(const void* data, std::size_t size) {
    if (size > 0) out_.append(static_cast<const char*>(data), size);
  }
  void ids(std::span<const int64_t> ids) {
    varint(ids.size());
    for (int64_t id : ids) varint(zigzag(id));
  }

 private:
  std::string& out_;
};

void append_definition(ByteSink& out, const Definition& definition);

// What is thrown for a trace that cannot be read.

/// Not a trace, a version that this build does not know, or a frame whose checksum is wrong: file, offset,
/// reason.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep
