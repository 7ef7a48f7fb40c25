#pragma once
// The bytes of a trace, as writer and reader share them; docs/trace.md describes them in words.

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "harness/verdict/trace/record.h"

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
  std::span<const int64_t> shape;
  std::string_view name;  ///< of collectives: the operation
  std::string_view reduction, group, tag;
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

}  // namespace lockstep
