#include "harness/judge/trace/reader.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

#include "harness/base/files.h"
#include "harness/base/text.h"

namespace lockstep {
namespace {

/// A file, or bytes in memory.
class Source {
 public:
  explicit Source(const std::string& path) : file_(std::in_place, path), size_(file_->size_bytes()) {
    if (!file_->problem().empty()) throw TraceError(path + ": " + file_->problem());
  }
  explicit Source(std::span<const std::byte> bytes) : bytes_(bytes), size_(bytes.size()) {}

  uint64_t size() const { return size_; }

  /// The caller has checked that the bytes are there; false if the file has shrunk since.
  bool read(uint64_t offset, char* to, std::size_t count) {
    if (!file_) {
      if (count > 0) std::memcpy(to, bytes_.data() + offset, count);
      return true;
    }
    while (count > 0) {
      const uint64_t ahead = offset - window_begin_;
      if (offset < window_begin_ || ahead >= window_.size()) {
        // Frames follow each other: the next ones are read along with a small one.
        if (count >= kWindowBytes) return read_through(offset, to, count);
        if (!fill_window(offset)) return false;
        continue;
      }
      const std::size_t here = std::min(count, window_.size() - static_cast<std::size_t>(ahead));
      std::memcpy(to, window_.data() + ahead, here);
      to += here;
      offset += here;
      count -= here;
    }
    return true;
  }

 private:
  static constexpr std::size_t kWindowBytes = std::size_t{1} << 16;  // a run of 1,000 ranks has as many open

  bool fill_window(uint64_t offset) {
    window_.resize(static_cast<std::size_t>(std::min<uint64_t>(kWindowBytes, size_ - offset)));
    window_begin_ = offset;
    ssize_t got = 0;
    do {
      got = ::pread(file_->descriptor(), window_.data(), window_.size(), static_cast<off_t>(offset));
    } while (got < 0 && errno == EINTR);
    window_.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return got > 0;
  }

  bool read_through(uint64_t offset, char* to, std::size_t count) const {
    while (count > 0) {
      const ssize_t got = ::pread(file_->descriptor(), to, count, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      to += got;
      offset += static_cast<uint64_t>(got);
      count -= static_cast<std::size_t>(got);
    }
    return true;
  }

  std::optional<OpenFile> file_;
  std::span<const std::byte> bytes_;
  uint64_t size_ = 0;
  std::string window_;
  uint64_t window_begin_ = 0;
};

/// Takes little-endian values from the payload of a frame, and checks every length before it is believed; throws TraceError naming
/// the place when it does not hold them.
class ByteCursor {
 public:
  /// `place`: in words, asked for if something is wrong.
  ByteCursor(std::string_view bytes, std::function<std::string()> place) : bytes_(bytes), place_(std::move(place)) {}
  [[noreturn]] void fail(const std::string& reason) const { throw TraceError(place_() + ": " + reason); }
  std::size_t left() const { return bytes_.size(); }
  std::string_view take(std::size_t size) {
    if (size > bytes_.size()) fail("a record is longer than its frame");
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  template <typename T>
  T raw() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = raw<uint8_t>();
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number of more than 64 bits");
  }
  std::string_view text() {
    const uint64_t size = varint();
    if (size > kMaxTextBytes) fail("a name of more than 1,024 bytes");
    return take(size);
  }
  std::vector<int64_t> ids() {
    const uint64_t count = varint();
    if (count > left()) fail("more ids than its frame has bytes");
    std::vector<int64_t> ids(count);
    for (int64_t& id : ids) id = unzigzag(varint());
    return ids;
  }

 private:
  std::string_view bytes_;
  std::function<std::string()> place_;
};

/// From the payload of a step's frame to records. Definitions and sequences so far; each step's frame may add to them.
class StepDecoder {
 public:
  StepDecoder(int rank, int world_size) : rank_(rank), world_size_(world_size) {}
  /// A step that `decode` made and nobody needs any more: if the next one has the same definitions, its records are filled again.
  void take_back(StepRecords used) { used_ = std::move(used); }

  StepRecords decode(ByteCursor& in) {
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

 private:
  static constexpr uint8_t kAllFlags = 63;

  struct Known {
    RecordKind kind;
    bool has_ids = false, has_payload = false, has_dot = false;
    std::size_t payload_bytes = 0;
    Record prototype;  ///< what all its records have in common
  };
  struct Sequence {
    std::vector<uint32_t> definitions;
    uint32_t number = 0;  ///< in the file
    bool has_parts = false;  ///< a record has a placement: who reads the step may put parts together
  };

  static std::shared_ptr<const Placement> decode_placement(ByteCursor& in, const std::vector<int64_t>& shape) {
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

  static Known decode_definition(ByteCursor& in) {
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

  Sequence decode_sequence(ByteCursor& in) {
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

  /// The definitions of the step's records, in their order; they may be new in this frame.
  const Sequence& sequence_of(ByteCursor& in) {
    const uint64_t reference = in.varint();
    if (reference > sequences_.size()) in.fail("a sequence of records that was never defined");
    if (reference == 0) sequences_.push_back(decode_sequence(in));
    const Sequence& sequence = reference == 0 ? sequences_.back() : sequences_[reference - 1];
    if (sequence.definitions.size() > in.left()) in.fail("more records than its frame has bytes");
    return sequence;
  }

  uint64_t samples_hash(const std::vector<int64_t>& ids) const {
    // Strided sampling: the k-th row of rank r is row world_size * k + r of the global batch.
    std::vector<int64_t> positions(ids.size());
    for (std::size_t k = 0; k < ids.size(); ++k) {
      positions[k] = static_cast<int64_t>(k) * world_size_ + rank_;
    }
    const std::array<int64_t, 1> shape = {std::ssize(ids)};
    return tensor_hash({ids.data(), DType::int64, shape, positions});
  }

  /// Sets all that is not of the definition.
  void fill(Record& record, ByteCursor& in, const Known& known) const {
    switch (known.kind) {
      case RecordKind::samples:
        record.ids = in.ids();
        record.shape = {std::ssize(record.ids)};
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
        if (known.prototype.has_stats) {
          const bool small = fits_float32(known.prototype.dtype);
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

  int rank_, world_size_;
  std::vector<Known> known_;
  std::vector<Sequence> sequences_;
  StepRecords used_;
};

}  // namespace

struct TraceReader::Impl {
  std::string path;
  Source source;
  TraceHeader header;
  std::optional<StepDecoder> decoder;
  uint64_t offset = 0;  // of the next frame
  int64_t steps = 0;
  int64_t last_step = std::numeric_limits<int64_t>::min();
  bool ended = false, finished = false;
  std::string end;
  std::string frame;
  std::optional<StepRecords> partial;
  std::optional<StepRecords> parts;  // of a step whose last frame has not come yet

  template <typename From>
  Impl(std::string name, const From& from) : path(std::move(name)), source(from) {}

  std::string after_step() const {
    return steps == 0 ? "before the first step" : fmt::format("after step {}", last_step);
  }
  std::string place() const {
    return fmt::format("{}: at offset {}, {}", path, with_commas(static_cast<int64_t>(offset)), after_step());
  }
  [[noreturn]] void fail(const std::string& reason) const { throw TraceError(place() + ": " + reason); }
  [[noreturn]] void fail_damaged(const char* what, uint64_t said, uint64_t found, int digits) const {
    fail(fmt::format(
        "{} is damaged: its checksum is {:0{}x} and its bytes give {:0{}x}; run the matrix again to retrain this run",
        what, said, digits, found, digits));
  }

  void cut_short() {
    ended = true;
    end = fmt::format("cut short in the record {}: {} of {} bytes are whole",
                      after_step(), with_commas(static_cast<int64_t>(offset)),
                      with_commas(std::ssize(source)));
  }

  void read(uint64_t from, char* to, std::size_t count) {
    if (!source.read(from, to, count)) fail("the file was truncated while it was read");
  }

  /// The next frame's type, its payload in `payload`; nothing if the file ends inside it or before it.
  std::optional<FrameType> next_frame(std::string_view& payload) {
    const uint64_t left = source.size() - offset;
    if (left < kFrameHeadBytes) return std::nullopt;
    uint64_t head = 0;
    read(offset, reinterpret_cast<char*>(&head), sizeof head);
    const auto size = static_cast<uint32_t>(head);
    const auto type = static_cast<FrameType>(head >> 32 & 0xff);
    if (const uint64_t right = frame_head(size, type); head != right) {
      fail_damaged("the head of a frame", head >> 40, right >> 40, 6);
    }
    if (left - kFrameHeadBytes < uint64_t{size} + kFrameTailBytes) return std::nullopt;
    frame.resize(kFrameHeadBytes + size + kFrameTailBytes);
    read(offset, frame.data(), frame.size());
    uint64_t checksum = 0;
    std::memcpy(&checksum, frame.data() + kFrameHeadBytes + size, sizeof checksum);
    if (const uint64_t right = XXH3_64bits(frame.data(), kFrameHeadBytes + size); checksum != right) {
      fail_damaged("a frame", checksum, right, 16);
    }
    payload = std::string_view(frame).substr(kFrameHeadBytes, size);
    return type;
  }

  void read_header() {
    char prefix[kFilePrefixBytes] = {};
    const std::size_t there = std::min<uint64_t>(source.size(), sizeof prefix);
    read(0, prefix, there);
    if (there == 0) throw TraceError(path + ": an empty file, not a trace");
    if (std::memcmp(prefix, kTraceMagic, std::min(there, sizeof kTraceMagic)) != 0) {
      throw TraceError(path + ": not a trace (it does not begin with LSTRACE)");
    }
    if (there < sizeof prefix) throw TraceError(path + ": a trace cut short in its first 12 bytes");
    uint32_t version = 0;
    std::memcpy(&version, prefix + sizeof kTraceMagic, sizeof version);
    if (version < kOldestTraceVersion || version > kTraceVersion) {
      throw TraceError(fmt::format("{}: a trace of version {}; this build reads versions {} to {}{}", path, version, kOldestTraceVersion,
                                   kTraceVersion, version > kTraceVersion ? ": a newer lockstep wrote it" : ""));
    }
    offset = sizeof prefix;
    std::string_view payload;
    const std::optional<FrameType> type = next_frame(payload);
    if (!type) throw TraceError(path + ": a trace cut short in its header");
    if (*type != FrameType::header) fail("the first frame is not a header");
    std::string why;
    const std::optional<TraceHeader> read_header = header_from_json(payload, why);
    if (!read_header) throw TraceError(path + ": " + why);
    header = *read_header;
    decoder.emplace(header.rank, header.world_size);
    offset += frame.size();
  }

  /// The step that a frame holds, with the parts of it that came before.
  StepRecords decode(std::string_view payload) {
    ByteCursor cursor(payload, [this] { return place(); });
    StepRecords step = decoder->decode(cursor);
    if (steps > 0 && step.step <= last_step) fail(fmt::format("step {} is repeated or out of order", step.step));
    if (!parts) return step;
    if (parts->step != step.step) fail(fmt::format("a part of step {} is followed by step {}", parts->step, step.step));
    parts->filled_by = 0;
    std::ranges::move(step.records, std::back_inserter(parts->records));
    return *std::exchange(parts, std::nullopt);
  }

  void end_partial(std::string_view payload) {
    partial = decode(payload);
    offset += frame.size();
    ended = true;
    end = fmt::format("ends inside step {}, which was left after {} records", partial->step,
                      partial->records.size());
    if (!partial->records.empty()) {
      const Record& last = partial->records.back();
      end += fmt::format(" (the last: {}, {})", name_of(last.phase), last.name);
    }
    if (offset != source.size()) fail("bytes after the step that was left");
  }

  void end_finished(std::string_view payload) {
    if (parts) fail("the end mark inside a step");
    ByteCursor cursor(payload, [this] { return place(); });
    const uint64_t count = cursor.varint();
    if (cursor.left() != 0 || count != static_cast<uint64_t>(steps)) {
      fail(fmt::format("the end mark states {} steps, but {} were read", count, steps));
    }
    offset += frame.size();
    if (offset != source.size()) fail("bytes after the end mark");
    ended = finished = true;
    end = "whole";
  }

  std::optional<StepRecords> next() {
    while (!ended) {  // a step may have as many parts as it has records
      if (offset == source.size()) {
        ended = true;
        end = fmt::format("ends {} without an end mark: the rank was stopped there, or is still running", after_step());
        break;
      }
      std::string_view payload;
      const std::optional<FrameType> type = next_frame(payload);
      if (!type) {
        cut_short();
        break;
      }
      switch (*type) {
        case FrameType::step_part:
          parts = decode(payload);
          offset += frame.size();
          break;
        case FrameType::step: {
          StepRecords step = decode(payload);
          last_step = step.step;
          ++steps;
          offset += frame.size();
          return step;
        }
        case FrameType::partial_step:
          end_partial(payload);
          break;
        case FrameType::end:
          end_finished(payload);
          break;
        case FrameType::header:
          fail("a second header");
        default:
          fail("a frame of an unknown kind");
      }
    }
    return std::nullopt;
  }
};

TraceReader::TraceReader(const std::string& path) : impl_(std::make_unique<Impl>(path, path)) {
  impl_->read_header();
}

TraceReader::TraceReader(std::span<const std::byte> bytes, const std::string& name)
    : impl_(std::make_unique<Impl>(name, bytes)) {
  impl_->read_header();
}

TraceReader::~TraceReader() = default;
TraceReader::TraceReader(TraceReader&&) noexcept = default;
TraceReader& TraceReader::operator=(TraceReader&&) noexcept = default;

const TraceHeader& TraceReader::header() const { return impl_->header; }
std::optional<StepRecords> TraceReader::next(StepRecords used) {
  impl_->decoder->take_back(std::move(used));
  return impl_->next();
}
void TraceReader::read_to_end() {
  std::optional<StepRecords> step;
  while ((step = next(step ? std::move(*step) : StepRecords()))) {
  }
}
bool TraceReader::finished() const { return impl_->finished; }
std::string TraceReader::end() const { return impl_->end; }
const std::optional<StepRecords>& TraceReader::partial() const { return impl_->partial; }
uint64_t TraceReader::valid_bytes() const { return impl_->offset; }
uint64_t TraceReader::file_bytes() const { return impl_->source.size(); }

static Trace read_all(TraceReader reader, const std::string& path) {
  Trace trace;
  trace.path = path;
  trace.header = reader.header();
  while (std::optional<StepRecords> step = reader.next()) trace.steps.push_back(std::move(*step));
  trace.partial = reader.partial();
  trace.finished = reader.finished();
  trace.valid_bytes = reader.valid_bytes();
  trace.file_bytes = reader.file_bytes();
  if (!trace.finished) trace.end = reader.end();
  return trace;
}

std::string trace_problem(const std::string& path, const std::string& config_hash, int rank) {
  try {
    TraceReader reader(path);
    const TraceHeader& header = reader.header();
    if (header.config_hash != config_hash || header.rank != rank) {
      return fmt::format("{}: is of rank {} of the run with the config hash {}, where rank {} of {} belongs",
                         path, header.rank, header.config_hash, rank, config_hash);
    }
    reader.read_to_end();
    return reader.finished() ? "" : fmt::format("{}: {}", path, reader.end());
  } catch (const TraceError& error) {
    return error.what();
  }
}

Trace read_trace(const std::string& path) { return read_all(TraceReader(path), path); }

Trace read_trace_bytes(std::span<const std::byte> bytes, const std::string& name) {
  return read_all(TraceReader(bytes, name), name);
}

}  // namespace lockstep
