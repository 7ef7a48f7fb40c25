#include "harness/verdict/trace/writer.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <xxhash.h>

#include "harness/base/errors.h"
#include "harness/verdict/trace/format.h"
#include "harness/verdict/trace/header.h"

namespace lockstep {
namespace {

struct BytesHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view bytes) const { return XXH3_64bits(bytes.data(), bytes.size()); }
};

/// Numbers byte strings in the order in which they are first seen.
class Interner {
 public:
  /// The number of `bytes`, and whether it is new.
  std::pair<uint32_t, bool> number(std::string_view bytes) {
    const auto known = numbers_.find(bytes);
    if (known != numbers_.end()) return {known->second, false};
    const auto next = static_cast<uint32_t>(order_.size());
    order_.push_back(&numbers_.emplace(bytes, next).first->first);
    return {next, true};
  }
  const std::string& bytes(uint32_t number) const { return *order_[number]; }

 private:
  std::unordered_map<std::string, uint32_t, BytesHash, std::equal_to<>> numbers_;
  std::vector<const std::string*> order_;  // nodes of an unordered_map stay where they are
};

}  // namespace

struct TraceWriter::Impl {
  Files& files;
  std::string path;
  TraceHeader header;
  std::size_t part_bytes = kMostPartBytes;
  int fd = -1;
  bool in_step = false;
  bool broken = false;  // a write failed: the destructor must not add to what is there
  int64_t step = 0;
  int64_t last_step = std::numeric_limits<int64_t>::min();
  uint64_t steps_written = 0;
  uint32_t definitions_written = 0;
  Interner definitions, sequences;
  std::vector<uint32_t> sequence;          // definitions of this step's records
  std::string data;                        // this step's records
  std::string definition, frame;  // scratch, kept for their capacity

  explicit Impl(Files& through) : files(through) {}
  ~Impl() {
    if (fd >= 0) files.close(fd);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void add(const Definition& what) {
    LOCKSTEP_CHECK(in_step, "a record outside of begin_step and end_step: " + path);
    LOCKSTEP_CHECK(what.name.size() <= kMaxTextBytes && what.shape.size() <= kMaxDimensions,
                   "a name of more than 1,024 bytes or a tensor of more than 16 dimensions: " + path);
    if (data.size() >= part_bytes) write_records(FrameType::step_part);
    definition.clear();
    ByteSink sink(definition);
    append_definition(sink, what);
    sequence.push_back(definitions.number(definition).first);
  }

  /// What a reader made of a record, as it was.
  void add(const Record& record) {
    Definition what;
    what.phase = record.phase;
    what.name = record.name;
    what.dtype = record.dtype;
    what.shape = record.shape;
    what.replicated = record.replicated;
    what.has_stats = record.has_stats;
    ByteSink sink(data);
    if (record.phase == Phase::collective) {
      const CollectiveRecord& collective = record.collective;
      what.kind = RecordKind::collective;
      what.name = collective.op;
      what.reduction = collective.reduction;
      what.group = collective.group;
      what.tag = collective.tag;
      what.root = collective.root;
      add(what);
      sink.raw(collective.hash_in);
      sink.raw(collective.hash_out);
    } else if (record.is_scalar) {
      what.kind = RecordKind::scalar;
      add(what);
      sink.raw(record.value);
    } else if (record.phase == Phase::random) {
      what.kind = RecordKind::random;
      add(what);
      sink.raw(record.stats.hash);
      sink.varint(static_cast<uint64_t>(record.value));
    } else if (record.phase == Phase::samples) {
      what.shape = {};
      add(what);
      sink.ids(record.ids);
    } else {
      what.kind = RecordKind::tensor;
      what.has_ids = !record.ids.empty();
      what.has_payload = header.level == TraceLevel::full || !record.payload.empty();
      what.has_dot = record.has_stats && !std::isnan(record.dot);
      what.placement = record.placement.get();
      add(what);
      add_tensor(what, record.stats, record.ids, record.dot);
      sink.bytes(record.payload.data(), record.payload.size());
    }
  }

  void add_tensor(const Definition& what, const TensorStats& stats, std::span<const int64_t> ids, double dot = 0) {
    ByteSink sink(data);
    sink.raw(stats.hash);
    if (what.has_stats) {
      if (fits_float32(what.dtype)) {
        sink.raw(static_cast<float>(stats.norm));
        sink.raw(static_cast<float>(stats.min));
        sink.raw(static_cast<float>(stats.max));
      } else {
        sink.raw(stats.norm);
        sink.raw(stats.min);
        sink.raw(stats.max);
      }
      sink.varint(stats.nonfinite);
    }
    if (what.has_dot) sink.raw(dot);
    if (what.has_ids) sink.ids(ids);
  }

  [[noreturn]] void fail(const char* doing, std::error_code error) {
    broken = true;
    throw MachineError(path + ": cannot " + doing + ": " + error.message());
  }

  /// Room for a frame's head behind what `frame` holds; where it begins.
  std::size_t begin_frame() {
    const std::size_t start = frame.size();
    frame.append(kFrameHeadBytes, '\0');
    return start;
  }

  /// Seals the frame that began there, and writes all.
  void end_frame(FrameType type, std::size_t start) {
    const std::size_t content = frame.size() - start - kFrameHeadBytes;
    LOCKSTEP_CHECK(content <= std::numeric_limits<uint32_t>::max(), "a tensor of 3 GiB or more: " + path);
    const uint64_t head = frame_head(static_cast<uint32_t>(content), type);
    std::memcpy(frame.data() + start, &head, sizeof head);
    ByteSink sink(frame);
    sink.raw(static_cast<uint64_t>(XXH3_64bits(frame.data() + start, frame.size() - start)));
    if (const auto error = files.write(fd, frame)) fail("write the trace", error);
    frame.clear();
  }

  void write_step(FrameType type) {
    write_records(type);
    ++steps_written;
    in_step = false;
    last_step = step;
  }

  void write_records(FrameType type) {
    const std::size_t start = begin_frame();
    ByteSink sink(frame);
    sink.varint(zigzag(step));
    const std::string_view key(reinterpret_cast<const char*>(sequence.data()),
                               sequence.size() * sizeof(uint32_t));
    const auto [number, is_new] = sequences.number(key);
    if (!is_new) {
      sink.varint(number + uint64_t{1});
    } else {
      sink.varint(0);
      sink.varint(sequence.size());
      for (uint32_t id : sequence) {
        sink.varint(id);
        if (id == definitions_written) {
          sink.text(definitions.bytes(id));
          ++definitions_written;
        }
      }
    }
    frame.append(data);
    end_frame(type, start);
    data.clear();
    sequence.clear();
  }
};

TraceWriter::TraceWriter(const std::string& path, const TraceHeader& header, Files& files, std::size_t part_bytes) {
  if (header.level == TraceLevel::off) return;
  impl_ = std::make_unique<Impl>(files);
  impl_->path = path;
  impl_->header = header;
  impl_->part_bytes = part_bytes;
  if (const auto error = files.open(path, OpenFor::replacing, impl_->fd)) {
    impl_->fail("create the trace", error);
  }
  ByteSink sink(impl_->frame);
  sink.bytes(kTraceMagic, sizeof kTraceMagic);
  sink.raw(kTraceVersion);
  const std::size_t start = impl_->begin_frame();
  impl_->frame += header_to_json(header);
  impl_->end_frame(FrameType::header, start);
}

TraceWriter::~TraceWriter() {
  if (!impl_ || impl_->fd < 0 || impl_->broken || !impl_->in_step || impl_->sequence.empty()) return;
  // A destructor may run because of an exception: what cannot be written now is lost, and the trace says so
  // by its end.
  try {
    impl_->write_step(FrameType::partial_step);
  } catch (const MachineError&) {
  }
}

bool TraceWriter::enabled() const { return impl_ != nullptr; }

TraceLevel TraceWriter::level() const { return impl_ ? impl_->header.level : TraceLevel::off; }

void TraceWriter::begin_step(int64_t step) {
  if (!impl_) return;
  LOCKSTEP_CHECK(!impl_->in_step, "begin_step inside a step: " + impl_->path);
  LOCKSTEP_CHECK(step > impl_->last_step, "steps of a trace must increase: " + impl_->path);
  impl_->in_step = true;
  impl_->step = step;
}

void TraceWriter::samples(std::span<const int64_t> ids) {
  if (!impl_) return;
  Definition what;
  what.kind = RecordKind::samples;
  what.phase = Phase::samples;
  what.name = "samples";
  what.dtype = DType::int64;
  impl_->add(what);
  ByteSink(impl_->data).ids(ids);
}

void TraceWriter::random(std::string_view stream, uint64_t hash, uint64_t draws) {
  if (!impl_) return;
  Definition what;
  what.kind = RecordKind::random;
  what.phase = Phase::random;
  what.name = stream;
  impl_->add(what);
  ByteSink sink(impl_->data);
  sink.raw(hash);
  sink.varint(draws);
}

void TraceWriter::scalar(Phase phase, std::string_view name, double value, Sharing sharing) {
  if (!impl_) return;
  Definition what;
  what.kind = RecordKind::scalar;
  what.phase = phase;
  what.name = name;
  what.dtype = DType::float64;
  what.replicated = sharing == Sharing::replicated;
  impl_->add(what);
  ByteSink(impl_->data).raw(value);
}

namespace {

template <typename Number>
double sum_of_products(const TensorView& tensor) {
  const auto* x = static_cast<const Number*>(tensor.data);
  const auto* y = static_cast<const Number*>(tensor.dot_with);
  double sum = 0;
  for (int64_t i = 0; i < tensor.elements(); ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

/// NaN of a type that no gradient has.
double dot_product(const TensorView& tensor) {
  if (tensor.dtype == DType::float32) return sum_of_products<float>(tensor);
  if (tensor.dtype == DType::float64) return sum_of_products<double>(tensor);
  return std::numeric_limits<double>::quiet_NaN();
}

/// As docs/trace.md has it: a tensor with a placement is hashed by its rows.
TensorStats stats_of(TensorView tensor) {
  std::vector<int64_t> positions;
  if (tensor.placement && !tensor.shape.empty()) {
    positions.resize(static_cast<std::size_t>(tensor.shape[0]));
    std::iota(positions.begin(), positions.end(), tensor.placement->offset[0]);
    tensor.row_positions = positions;
  }
  return tensor_stats(tensor);
}

}  // namespace

TensorStats TraceWriter::tensor(Phase phase, std::string_view name, const TensorView& tensor, Sharing sharing,
                                std::span<const int64_t> ids, Keep keep) {
  if (!impl_) return {};
  LOCKSTEP_CHECK(!tensor.placement || (tensor.placement->whole.size() == tensor.shape.size() &&
                                       tensor.placement->offset.size() == tensor.shape.size()),
                 "a placement of other dimensions than its tensor: " + impl_->path);
  const TensorStats stats = stats_of(tensor);
  const TraceLevel level = impl_->header.level;
  // Rank 0 writes out for all what all hold alike; the others leave the hash that shows whether they do.
  const bool spoken_for = sharing == Sharing::replicated && impl_->header.rank != 0;
  Definition what;
  what.kind = RecordKind::tensor;
  what.phase = phase;
  what.name = name;
  what.dtype = tensor.dtype;
  what.shape = tensor.shape;
  what.replicated = sharing == Sharing::replicated;
  what.has_stats = !spoken_for || level == TraceLevel::stats || level == TraceLevel::full;
  what.has_payload = level == TraceLevel::full || (keep == Keep::whole && !spoken_for);
  what.has_ids = !ids.empty();
  what.has_dot = what.has_stats && tensor.dot_with != nullptr;
  what.placement = tensor.placement;
  impl_->add(what);
  impl_->add_tensor(what, stats, ids, what.has_dot ? dot_product(tensor) : 0);
  if (what.has_payload)
    ByteSink(impl_->data).bytes(tensor.data, static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype));
  return stats;
}

void TraceWriter::collective(const CollectiveRecord& record) {
  if (!impl_) return;
  Definition what;
  what.kind = RecordKind::collective;
  what.phase = Phase::collective;
  what.name = record.op;
  what.reduction = record.reduction;
  what.group = record.group;
  what.tag = record.tag;
  what.root = record.root;
  what.dtype = record.dtype;
  what.shape = record.shape;
  impl_->add(what);
  ByteSink sink(impl_->data);
  sink.raw(record.hash_in);
  sink.raw(record.hash_out);
}

void TraceWriter::end_step() {
  if (!impl_) return;
  LOCKSTEP_CHECK(impl_->in_step, "end_step without begin_step: " + impl_->path);
  impl_->write_step(FrameType::step);
}

void TraceWriter::copy(const StepRecords& step) {
  if (!impl_) return;
  begin_step(step.step);
  for (const Record& record : step.records) impl_->add(record);
  end_step();
}

void TraceWriter::pause() {
  LOCKSTEP_CHECK(!impl_ || !impl_->in_step, "a trace pauses between steps alone");
  if (impl_) paused_ = std::move(impl_);
}

void TraceWriter::go_on() {
  if (paused_) impl_ = std::move(paused_);
}

void TraceWriter::finish() {
  if (!impl_ || impl_->fd < 0) return;
  if (impl_->in_step) impl_->write_step(FrameType::step);
  const std::size_t start = impl_->begin_frame();
  ByteSink(impl_->frame).varint(impl_->steps_written);
  impl_->end_frame(FrameType::end, start);
  if (const auto error = impl_->files.close(std::exchange(impl_->fd, -1))) {
    impl_->fail("close the trace", error);
  }
}

}  // namespace lockstep
