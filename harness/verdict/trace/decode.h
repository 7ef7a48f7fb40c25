#pragma once
// From the payload of a step's frame to records; every length is checked before it is believed.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/trace/format.h"
#include "harness/verdict/trace/record.h"
#include "harness/verdict/trace/trace_error.h"

namespace lockstep {

/// Takes little-endian values from a payload; throws TraceError naming the place when it does not hold them.
class ByteCursor {
 public:
  ByteCursor(std::string_view bytes, std::string place) : bytes_(bytes), place_(std::move(place)) {}
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
  void skip_ids();

 private:
  std::string_view bytes_;
  std::string place_;
};

/// Definitions and sequences so far; each step's frame may add to them.
class StepDecoder {
 public:
  StepDecoder(int rank, int world_size) : rank_(rank), world_size_(world_size) {}
  StepRecords decode(ByteCursor& in);
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
  std::vector<uint32_t> decode_sequence(ByteCursor& in);
  /// The definitions of the step's records, in their order; they may be new in this frame.
  const std::vector<uint32_t>& sequence_of(ByteCursor& in);
  static void add_record(ByteCursor& in, const Known& known, GradientNorms& to);
  Record decode_record(ByteCursor& in, const Known& known) const;
  uint64_t samples_hash(const std::vector<int64_t>& ids) const;

  int rank_, world_size_;
  std::vector<Known> known_;
  std::vector<std::vector<uint32_t>> sequences_;
};

}  // namespace lockstep
