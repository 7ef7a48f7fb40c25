#pragma once
// From the payload of a step's frame to records; every length is checked before it is believed.

#include <functional>
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
  void skip_ids();

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
  static void add_record(ByteCursor& in, const Known& known, GradientNorms& to);
  /// Sets all that is not of the definition.
  void fill(Record& record, ByteCursor& in, const Known& known) const;
  uint64_t samples_hash(const std::vector<int64_t>& ids) const;

  int rank_, world_size_;
  std::vector<Known> known_;
  std::vector<Sequence> sequences_;
  StepRecords used_;
};

}  // namespace lockstep
