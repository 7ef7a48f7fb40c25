#include "harness/verdict/trace/decode.h"

#include <array>
#include <utility>

namespace lockstep {
namespace {

constexpr uint8_t kAllFlags = 63;

/// -1 of an impossible shape.
int64_t elements_of(const std::vector<int64_t>& shape) {
  constexpr int64_t kMostElements = int64_t{1} << 48;
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || extent > kMostElements || (extent > 0 && elements > kMostElements / extent)) return -1;
    elements *= extent;
  }
  return elements;
}

}  // namespace

void ByteCursor::fail(const std::string& reason) const { throw TraceError(place_() + ": " + reason); }

std::string_view ByteCursor::take(std::size_t size) {
  if (size > bytes_.size()) fail("a record is longer than its frame");
  const std::string_view taken = bytes_.substr(0, size);
  bytes_.remove_prefix(size);
  return taken;
}

uint64_t ByteCursor::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = raw<uint8_t>();
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail("a number of more than 64 bits");
}

std::string_view ByteCursor::text() {
  const uint64_t size = varint();
  if (size > kMaxTextBytes) fail("a name of more than 1,024 bytes");
  return take(size);
}

std::vector<int64_t> ByteCursor::ids() {
  const uint64_t count = varint();
  if (count > left()) fail("more ids than its frame has bytes");
  std::vector<int64_t> ids(count);
  for (int64_t& id : ids) id = unzigzag(varint());
  return ids;
}

void ByteCursor::skip_ids() {
  const uint64_t count = varint();
  if (count > left()) fail("more ids than its frame has bytes");
  for (uint64_t i = 0; i < count; ++i) varint();
}

std::shared_ptr<const Placement> StepDecoder::decode_placement(ByteCursor& in, const std::vector<int64_t>& shape) {
  auto placement = std::make_shared<Placement>();
  const auto kind = in.raw<uint8_t>();
  if (kind > 1) in.fail("a placement of an unknown kind");
  placement->shard = kind == 1;
  for (const int64_t extent : shape) {
    const int64_t whole = unzigzag(in.varint()), offset = unzigzag(in.varint());
    const bool inside = offset >= 0 && offset <= whole && extent <= whole - offset;
    if (!inside || (!placement->shard && extent != whole)) in.fail("a part that does not lie inside its tensor");
    placement->whole.push_back(whole);
    placement->offset.push_back(offset);
  }
  if (elements_of(placement->whole) < 0) in.fail("a tensor of an impossible shape");
  return placement;
}

StepDecoder::Known StepDecoder::decode_definition(ByteCursor& in) {
  Known known;
  Record& record = known.prototype;
  const auto kind = in.raw<uint8_t>();
  const auto phase = in.raw<uint8_t>();
  const auto flags = in.raw<uint8_t>();
  const auto dtype = in.raw<uint8_t>();
  if (kind > static_cast<uint8_t>(RecordKind::collective) || phase > static_cast<uint8_t>(kLastPhase) ||
      flags > kAllFlags || dtype > static_cast<uint8_t>(kLastDType)) {
    in.fail("a definition of an unknown kind");
  }
  known.kind = static_cast<RecordKind>(kind);
  record.phase = static_cast<Phase>(phase);
  record.dtype = static_cast<DType>(dtype);
  record.replicated = flags & 1;
  record.has_stats = flags & 2;
  known.has_ids = flags & 4;
  known.has_payload = flags & 8;
  known.has_dot = flags & 16;
  if (known.has_dot && !record.has_stats) in.fail("a dot product without statistics");
  record.is_scalar = known.kind == RecordKind::scalar;
  const int64_t root = unzigzag(in.varint());
  const uint64_t dimensions = in.varint();
  if (dimensions > kMaxDimensions) in.fail("a tensor of more than 16 dimensions");
  for (uint64_t i = 0; i < dimensions; ++i) record.shape.push_back(unzigzag(in.varint()));
  const int64_t elements = elements_of(record.shape);
  if (elements < 0) in.fail("a tensor of an impossible shape");
  known.payload_bytes = known.has_payload ? static_cast<std::size_t>(elements) * size_of(record.dtype) : 0;
  record.name = in.text();
  if (flags & 32) record.placement = decode_placement(in, record.shape);
  if (record.placement && !record.shape.empty()) record.hashed = Hashed::rows;
  if (known.kind != RecordKind::collective) return known;

  CollectiveRecord& collective = record.collective;
  collective.op = record.name;
  collective.reduction = in.text();
  collective.group = in.text();
  collective.tag = in.text();
  collective.root = static_cast<int>(root);
  collective.dtype = record.dtype;
  collective.shape = record.shape;
  if (!collective.tag.empty()) record.name += " " + collective.tag;
  return known;
}

StepDecoder::Sequence StepDecoder::decode_sequence(ByteCursor& in) {
  const uint64_t count = in.varint();
  if (count > in.left()) in.fail("more records than its frame has bytes");
  Sequence sequence;
  sequence.number = static_cast<uint32_t>(sequences_.size() + 1);
  sequence.definitions.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t id = in.varint();
    if (id > known_.size()) in.fail("a record without a definition");
    if (id == known_.size()) {
      const uint64_t size = in.varint();
      if (size > in.left()) in.fail("a definition is longer than its frame");
      const std::size_t after = in.left() - size;
      known_.push_back(decode_definition(in));
      if (in.left() != after) in.fail("a definition of a wrong length");
    }
    sequence.definitions.push_back(static_cast<uint32_t>(id));
    sequence.has_parts = sequence.has_parts || known_[id].prototype.placement;
  }
  return sequence;
}

uint64_t StepDecoder::samples_hash(const std::vector<int64_t>& ids) const {
  // Strided sampling: the k-th row of rank r is row world_size * k + r of the global batch.
  std::vector<int64_t> positions(ids.size());
  for (std::size_t k = 0; k < ids.size(); ++k) {
    positions[k] = static_cast<int64_t>(k) * world_size_ + rank_;
  }
  const std::array<int64_t, 1> shape = {static_cast<int64_t>(ids.size())};
  return tensor_hash({ids.data(), DType::int64, shape, positions});
}

void StepDecoder::fill(Record& record, ByteCursor& in, const Known& known) const {
  switch (known.kind) {
    case RecordKind::samples:
      record.ids = in.ids();
      record.shape = {static_cast<int64_t>(record.ids.size())};
      record.stats.hash = samples_hash(record.ids);
      break;
    case RecordKind::random:
      record.stats.hash = in.raw<uint64_t>();
      record.value = static_cast<double>(in.varint());
      break;
    case RecordKind::scalar:
      record.value = in.raw<double>();
      break;
    case RecordKind::collective:
      record.collective.hash_in = in.raw<uint64_t>();
      record.collective.hash_out = in.raw<uint64_t>();
      break;
    case RecordKind::tensor: {
      record.stats.hash = in.raw<uint64_t>();
      if (record.has_stats) {
        const bool small = fits_float32(record.dtype);
        record.stats.norm = small ? in.raw<float>() : in.raw<double>();
        record.stats.min = small ? in.raw<float>() : in.raw<double>();
        record.stats.max = small ? in.raw<float>() : in.raw<double>();
        record.stats.nonfinite = in.varint();
      }
      if (known.has_dot) record.dot = in.raw<double>();
      if (known.has_ids) record.ids = in.ids();
      const std::string_view payload = in.take(known.payload_bytes);
      const auto* bytes = reinterpret_cast<const std::byte*>(payload.data());
      record.payload.assign(bytes, bytes + payload.size());
      break;
    }
  }
}

const StepDecoder::Sequence& StepDecoder::sequence_of(ByteCursor& in) {
  const uint64_t reference = in.varint();
  if (reference > sequences_.size()) in.fail("a sequence of records that was never defined");
  if (reference == 0) sequences_.push_back(decode_sequence(in));
  const Sequence& sequence = reference == 0 ? sequences_.back() : sequences_[reference - 1];
  if (sequence.definitions.size() > in.left()) in.fail("more records than its frame has bytes");
  return sequence;
}

StepRecords StepDecoder::decode(ByteCursor& in) {
  StepRecords step = std::exchange(used_, {});
  step.step = unzigzag(in.varint());
  const Sequence& sequence = sequence_of(in);
  const std::size_t count = sequence.definitions.size();
  if (step.filled_by != sequence.number || step.records.size() != count) {
    step.records.clear();
    step.records.reserve(count);
  }
  step.filled_by = sequence.has_parts ? 0 : sequence.number;
  for (std::size_t i = 0; i < count; ++i) {
    const Known& known = known_[sequence.definitions[i]];
    if (i == step.records.size()) step.records.push_back(known.prototype);
    step.records[i].step = step.step;
    fill(step.records[i], in, known);
  }
  if (in.left() != 0) in.fail("bytes after the last record of a step");
  return step;
}

void StepDecoder::add_record(ByteCursor& in, const Known& known, GradientNorms& to) {
  switch (known.kind) {
    case RecordKind::samples:
      to.ids = in.ids();
      return;
    case RecordKind::random:
      in.take(sizeof(uint64_t));
      in.varint();
      return;
    case RecordKind::scalar:
      in.take(sizeof(double));
      return;
    case RecordKind::collective:
      in.take(2 * sizeof(uint64_t));
      return;
    case RecordKind::tensor:
      break;
  }
  const Record& record = known.prototype;
  in.take(sizeof record.stats.hash);
  if (record.has_stats) {
    const bool small = fits_float32(record.dtype);
    const double norm = small ? in.raw<float>() : in.raw<double>();
    in.take(2 * (small ? sizeof(float) : sizeof(double)));
    const uint64_t nonfinite = in.varint();
    const bool local = record.phase == Phase::local_gradients;
    if (local || record.phase == Phase::reduced_gradients) {
      (local ? to.local_squared : to.reduced_squared) += norm * norm;
      (local ? to.has_local : to.has_reduced) = true;
      to.nonfinite += nonfinite;
    }
  }
  if (known.has_dot) in.take(sizeof record.dot);
  if (known.has_ids) in.skip_ids();
  in.take(known.payload_bytes);
}

GradientNorms StepDecoder::decode_gradient_norms(ByteCursor& in) {
  GradientNorms norms;
  norms.step = unzigzag(in.varint());
  for (const uint32_t id : sequence_of(in).definitions) add_record(in, known_[id], norms);
  if (in.left() != 0) in.fail("bytes after the last record of a step");
  return norms;
}

}  // namespace lockstep
