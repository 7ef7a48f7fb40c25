#pragma once
// Traces of a LibTorch trainer with a loop of its own, for `lockstep compare`. One header: it needs LibTorch and the header xxhash.h.
//
//   lockstep_probe::Probe probe(model, optimizer, {.rank = rank, .world_size = world_size});
//   for (...) {
//     probe.rows(ids);                       // begins the step: sample ids of this rank's rows
//     ... forward, backward ...
//     probe.local();                         // gradients before any reduction
//     ... reduce gradients over ranks ...
//     probe.reduced();                       // before clipping
//     ... clip ...
//     probe.applied();                       // what the optimizer takes
//     optimizer.step();
//     probe.step(loss);                      // parameters, buffers; ends the step. Call it before a scheduler changes the rate
//     probe.metric("accuracy", accuracy);    // evaluations after it, until the next rows()
//   }
//
// Each line may be left out, apart from step(). Environment:
//
//   LOCKSTEP_TRACE      an absolute folder for rank-<r>.trace; unset: the probe does nothing
//   LOCKSTEP_LEVEL      off, hash (default), stats, full: docs/trace.md, "Levels"
//   LOCKSTEP_SNAPSHOTS  steps, separated by commas, that keep all values, and what they begin with; none; or auto (default): the first steps, as far
//                       as 64 MB reach, and steps 0, 1, 10, 100, … of small models
//   LOCKSTEP_EVERY      records every n-th step, and the snapshots'; default 1
//   LOCKSTEP_LED_BY     the folder of the traces of the run that this one should equal: each step that it kept begins with its weights and moments
//
// What the probe cannot do (a full disk, a folder that it cannot write) it says once on stderr; then it is off, and training goes on. One
// thread may call it. Tensors on devices are copied to the host. Compile with -O2 or -O3: one core then takes 0.5 ns per float32 element.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_as_real.h>
#include <fcntl.h>
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

namespace lockstep_probe {

/// What stands in the header of each trace beside rank and level.
struct Options {
  int64_t rank = 0, world_size = 1;
  std::string run = {};       ///< a text that is the same on all ranks of a run; empty: the folder
  int64_t first_step = 0;     ///< of a resumed run: its first step
  bool replicated = true;     ///< all ranks hold the whole model, and their parameters should be equal
  double clip_norm = 0;       ///< 0: gradients are not clipped
  int64_t accumulation = 1;   ///< micro-steps of a step
  int64_t global_batch = 0;   ///< rows of a step on all ranks; 0: not declared
  bool sum_gradients = false;  ///< gradients are summed over ranks, not averaged
};

/// What a collective is, beside its name.
struct Call {
  std::string reduction = {};  ///< sum, mean, max, …
  std::string group = {};      ///< docs/trace.md, "Groups"; empty: all ranks
  std::string tag = {};        ///< what it is for
  int64_t root = -1;           ///< of a broadcast; the other rank of `send` and `recv`
};

namespace detail {

// ---------------------------------------------------------------- the hash and the statistics of a tensor (docs/trace.md)

inline constexpr std::size_t kBlockWords = 1024, kLanes = 16;

constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

/// Keys in halves: the product of a word of 32 bits and a key of 64 is two products that vectorise.
struct Keys {
  alignas(64) std::array<uint32_t, kBlockWords> mask{}, low{}, high{};
};

constexpr Keys make_keys() {
  uint64_t state = 0x6c6f636b73746570ULL;
  const auto draw = [&state] {
    uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  };
  Keys keys;
  for (std::size_t i = 0; i < kBlockWords; ++i) {
    keys.mask[i] = static_cast<uint32_t>(draw() >> 32);
    const uint64_t key = draw() | 1;
    keys.low[i] = static_cast<uint32_t>(key);
    keys.high[i] = static_cast<uint32_t>(key >> 32);
  }
  return keys;
}

inline constexpr Keys kKeys = make_keys();

enum DType : uint8_t { float32, float64, int64, bfloat16, boolean, float16, int32 };
inline constexpr std::array<std::size_t, 7> kBytes = {4, 8, 8, 2, 1, 2, 4};

struct Stats {
  uint64_t hash = 0;
  double norm = 0, min = 0, max = 0;  ///< of the finite values
  uint64_t nonfinite = 0;
};

/// Lane l sums the squares of elements l, l + 16, … of each block, whatever the width of the machine's vectors.
struct Totals {
  alignas(64) std::array<double, kLanes> squares{};
  double min = std::numeric_limits<double>::infinity(), max = -std::numeric_limits<double>::infinity();
  uint64_t nonfinite = 0;
};

typedef uint32_t Word __attribute__((may_alias));
typedef uint16_t Half __attribute__((may_alias));
typedef float Float4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef double Double4 __attribute__((vector_size(32)));

#define LOCKSTEP_PROBE_INLINE __attribute__((always_inline)) inline

/// Loops over so many elements are vectorised at -O2.
inline constexpr std::size_t kChunk = 32;

template <typename Source>
LOCKSTEP_PROBE_INLINE void add_word(const Source* words, std::size_t i, uint64_t& low, uint32_t& high) {
  const uint32_t word = words[i] ^ kKeys.mask[i];
  low += static_cast<uint64_t>(word) * kKeys.low[i];
  high += word * kKeys.high[i];
}

template <typename Source>
LOCKSTEP_PROBE_INLINE uint64_t hash_words(const Source* words, std::size_t count) {
  uint64_t low = 0;
  uint32_t high = 0;
  std::size_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (std::size_t j = 0; j < kChunk; ++j) add_word(words, i + j, low, high);
  }
  for (; i < count; ++i) add_word(words, i, low, high);
  return low + (static_cast<uint64_t>(high) << 32);
}

template <typename Load>
LOCKSTEP_PROBE_INLINE void add_each(std::size_t count, Totals& totals, Load load) {
  for (std::size_t i = 0; i < count; ++i) {
    const double value = load(i);
    if (!std::isfinite(value)) {
      ++totals.nonfinite;
      continue;
    }
    totals.squares[i % kLanes] += value * value;
    if (value < totals.min) totals.min = value;
    if (value > totals.max) totals.max = value;
  }
}

/// Floats ordered as integers: minimum and maximum then need no care for NaN, and vectorise.
LOCKSTEP_PROBE_INLINE int32_t ordered(uint32_t bits) {
  const auto value = static_cast<int32_t>(bits);
  return value ^ ((value >> 31) & 0x7fffffff);
}
LOCKSTEP_PROBE_INLINE double number(int32_t order) {
  return std::bit_cast<float>(static_cast<uint32_t>(order ^ ((order >> 31) & 0x7fffffff)));
}

LOCKSTEP_PROBE_INLINE void extremes(const Word* words, std::size_t count, int32_t& least, int32_t& most) {
  const auto add = [&](std::size_t i) __attribute__((always_inline)) {
    const int32_t order = ordered(words[i]);
    least = order < least ? order : least;
    most = order > most ? order : most;
  };
  std::size_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (std::size_t j = 0; j < kChunk; ++j) add(i + j);
  }
  for (; i < count; ++i) add(i);
}

LOCKSTEP_PROBE_INLINE void add_float32(const void* data, std::size_t count, Totals& totals) {
  const auto* values = static_cast<const float*>(data);
  const auto* words = static_cast<const Word*>(data);
  int32_t least = std::numeric_limits<int32_t>::max(), most = std::numeric_limits<int32_t>::min();
  extremes(words, count, least, most);
  constexpr int32_t kInfinity = 0x7f800000;
  if (most >= kInfinity || least <= ~kInfinity) {
    return add_each(count, totals, [&](std::size_t i) { return static_cast<double>(values[i]); });
  }
  Double4 lanes[4];
  std::memcpy(lanes, totals.squares.data(), sizeof lanes);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t j = 0; j < 4; ++j) {
      const Double4 value = __builtin_convertvector(*reinterpret_cast<const Float4*>(values + i + 4 * j), Double4);
      lanes[j] += value * value;
    }
  }
  std::memcpy(totals.squares.data(), lanes, sizeof lanes);
  for (; i < count; ++i) totals.squares[i % kLanes] += static_cast<double>(values[i]) * values[i];
  totals.min = std::min(totals.min, number(least));
  totals.max = std::max(totals.max, number(most));
}

template <typename Number>
LOCKSTEP_PROBE_INLINE void add_plain(const void* data, std::size_t count, Totals& totals) {
  add_each(count, totals, [&](std::size_t i) { return static_cast<double>(static_cast<const Number*>(data)[i]); });
}

LOCKSTEP_PROBE_INLINE void add_block(DType dtype, const void* data, std::size_t count, Totals& totals) {
  switch (dtype) {
    case float32: return add_float32(data, count, totals);
    case float64: return add_plain<double>(data, count, totals);
    case int64: return add_plain<int64_t>(data, count, totals);
    case bfloat16: return add_plain<c10::BFloat16>(data, count, totals);
    case boolean: return add_each(count, totals, [&](std::size_t i) { return static_cast<const uint8_t*>(data)[i] ? 1.0 : 0.0; });
    case float16: return add_plain<c10::Half>(data, count, totals);
    case int32: return add_plain<int32_t>(data, count, totals);
  }
}

/// One row of `count` elements: the sum of its blocks' mixed hashes. `totals`: null if nobody asks for statistics.
LOCKSTEP_PROBE_INLINE uint64_t row_of(DType dtype, const char* data, std::size_t count, uint64_t row_key, Totals* totals) {
  const std::size_t bytes = kBytes[dtype], block = bytes == 8 ? kBlockWords / 2 : kBlockWords;
  uint64_t hash = 0;
  std::size_t done = 0;
  do {
    const std::size_t here = std::min(block, count - done);
    const char* start = here == 0 ? data : data + done * bytes;
    const uint64_t sum = bytes == 1   ? hash_words(reinterpret_cast<const uint8_t*>(start), here)
                         : bytes == 2 ? hash_words(reinterpret_cast<const Half*>(start), here)
                                      : hash_words(reinterpret_cast<const Word*>(start), here * bytes / 4);
    hash += mix(sum + row_key + (done / block) * 0x9e3779b97f4a7c15ULL);
    if (totals != nullptr) add_block(dtype, start, here, *totals);
    done += here;
  } while (done < count);
  return hash;
}

inline uint64_t row_portable(DType dtype, const char* data, std::size_t count, uint64_t row_key, Totals* totals) {
  return row_of(dtype, data, count, row_key, totals);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) inline uint64_t row_avx2(DType dtype, const char* data, std::size_t count, uint64_t row_key, Totals* totals) {
  return row_of(dtype, data, count, row_key, totals);
}
#endif

inline uint64_t row(DType dtype, const char* data, std::size_t count, uint64_t row_key, Totals* totals) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return row_avx2(dtype, data, count, row_key, totals);
#endif
  return row_portable(dtype, data, count, row_key, totals);
}

/// `positions`: of the rows in the whole tensor; empty: the tensor is hashed as one row.
inline uint64_t tensor_hash(DType dtype, const void* data, c10::IntArrayRef shape, c10::IntArrayRef positions = {}, Totals* totals = nullptr) {
  if (!shape.empty() && shape[0] == 0) return 0;
  std::size_t elements = 1;
  for (const int64_t extent : shape) elements *= static_cast<std::size_t>(extent);
  uint64_t key = mix(static_cast<uint64_t>(dtype) + 0x7472616365ULL);
  for (const int64_t extent : positions.empty() ? shape : shape.slice(1)) key = mix(key + static_cast<uint64_t>(extent) + 0x9e3779b97f4a7c15ULL);
  const char* at = static_cast<const char*>(data);
  if (positions.empty()) return row(dtype, at, elements, mix(key), totals);
  const std::size_t each = elements / positions.size();
  uint64_t hash = 0;
  for (const int64_t position : positions) {
    hash += row(dtype, at, each, mix(key + static_cast<uint64_t>(position) * 0xd1b54a32d192ed03ULL), totals);
    at += each * kBytes[dtype];
  }
  return hash;
}

/// The norm of doubles whose squares leave the range of a double.
inline double scaled_norm(const double* values, std::size_t count, double largest) {
  const int exponent = std::ilogb(largest);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) continue;
    const double value = std::scalbn(values[i], -exponent);
    sum += value * value;
  }
  return std::scalbn(std::sqrt(sum), exponent);
}

inline Stats tensor_stats(DType dtype, const void* data, c10::IntArrayRef shape) {
  Totals totals;
  Stats stats;
  stats.hash = tensor_hash(dtype, data, shape, {}, &totals);
  stats.nonfinite = totals.nonfinite;
  if (totals.min > totals.max) return stats;
  std::array<double, kLanes> lanes = totals.squares;
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  stats.min = totals.min;
  stats.max = totals.max;
  stats.norm = std::sqrt(lanes[0]);
  const double largest = std::max(std::abs(stats.min), std::abs(stats.max));
  if (dtype == float64 && (!std::isfinite(lanes[0]) || (lanes[0] < 1e-290 && largest > 0))) {
    std::size_t elements = 1;
    for (const int64_t extent : shape) elements *= static_cast<std::size_t>(extent);
    stats.norm = scaled_norm(static_cast<const double*>(data), elements, largest);
  }
  return stats;
}

// ---------------------------------------------------------------- the bytes

inline constexpr char kMagic[] = "LSTRACE\n";
inline constexpr uint32_t kVersion = 2;
enum Frame : uint8_t { header = 1, whole_step = 2, partial_step = 3, end_mark = 4, step_part = 5 };
enum Kind : uint8_t { samples, random, scalar, tensor, collective };
enum Flag : uint8_t { alike = 1, statistics = 2, with_ids = 4, with_values = 8, with_dot = 16, with_placement = 32 };
enum class Phase : uint8_t {
  snapshot, samples, random, control, energies, loss, local_gradients, collective, reduced_gradients, gradient_norm, parameters, evaluation,
  term_sums, applied_gradients, optimizer_state, inputs,
};

inline void append(std::string& out, const void* data, std::size_t bytes) {
  if (bytes > 0) out.append(static_cast<const char*>(data), bytes);
}
template <typename Number>
void raw(std::string& out, Number number) {
  append(out, &number, sizeof number);
}
inline void varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
inline void signed_varint(std::string& out, int64_t value) {
  varint(out, (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
}
inline void text(std::string& out, std::string_view value) {
  varint(out, value.size());
  out.append(value);
}
inline void id_list(std::string& out, const std::vector<int64_t>& ids) {
  varint(out, ids.size());
  for (const int64_t id : ids) signed_varint(out, id);
}

inline uint64_t frame_head(uint32_t payload_bytes, Frame type) {
  char head[5];
  std::memcpy(head, &payload_bytes, 4);
  head[4] = static_cast<char>(type);
  return payload_bytes | static_cast<uint64_t>(type) << 32 | (XXH3_64bits(head, sizeof head) & 0xffffff) << 40;
}

/// A tensor on the host, contiguous, of a dtype that a trace knows.
struct Host {
  at::Tensor tensor;
  DType dtype = float32;

  explicit Host(const at::Tensor& from) {
    const at::NoGradGuard no_gradient;
    tensor = from.detach();
    if (tensor.layout() != at::kStrided) tensor = tensor.to_dense();
    if (tensor.is_complex()) tensor = at::view_as_real(tensor.resolve_conj());
    tensor = tensor.cpu();
    const auto known = number_of(tensor.scalar_type());
    dtype = known ? *known : tensor.is_floating_point() ? float32 : int64;
    if (!known) tensor = tensor.to(tensor.is_floating_point() ? at::kFloat : at::kLong);
    tensor = tensor.resolve_neg().contiguous();
  }
  static std::optional<DType> number_of(at::ScalarType type) {
    for (std::size_t i = 0; i < kTypes.size(); ++i) {
      if (kTypes[i] == type) return static_cast<DType>(i);
    }
    return std::nullopt;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(tensor.numel()) * kBytes[dtype]; }
  Stats stats() const { return tensor_stats(dtype, tensor.const_data_ptr(), tensor.sizes()); }
  uint64_t hash() const { return tensor_hash(dtype, tensor.const_data_ptr(), tensor.sizes()); }

  static constexpr std::array<at::ScalarType, 7> kTypes = {at::kFloat, at::kDouble, at::kLong, at::kBFloat16, at::kBool, at::kHalf, at::kInt};
};

struct Definition {
  Kind kind = samples;
  Phase phase = Phase::samples;
  uint8_t flags = 0;
  DType dtype = int64;
  int64_t root = -1;
  std::vector<int64_t> shape = {};
  std::string name = {};
  std::string reduction = {}, group = {}, tag = {};  ///< of collectives

  std::string bytes() const {
    std::string out = {static_cast<char>(kind), static_cast<char>(phase), static_cast<char>(flags), static_cast<char>(dtype)};
    signed_varint(out, root);
    varint(out, shape.size());
    for (const int64_t extent : shape) signed_varint(out, extent);
    text(out, name);
    if (kind != collective) return out;
    for (const std::string* each : {&reduction, &group, &tag}) text(out, *each);
    return out;
  }
};

/// One rank's trace file. Errors are exceptions; the probe turns them into its one message.
class Writer {
 public:
  Writer(const std::filesystem::path& path, const std::string& header_json) : path_(path) {
    std::filesystem::create_directories(path.parent_path());
    // `lockstep` has emptied this folder: what is there is another program's of the same command.
    const char* const emptied = std::getenv("LOCKSTEP_EMPTIED");
    const int first = emptied != nullptr && path.parent_path() == emptied ? O_EXCL : O_TRUNC;
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | first | O_CLOEXEC, 0666);
    if (fd_ < 0) fail(errno == EEXIST ? "holds what another program of the command has recorded" : "cannot be made");
    append(frame_, kMagic, 8);
    raw(frame_, kVersion);
    write_frame(Frame::header, header_json);
  }
  ~Writer() {
    if (fd_ >= 0) ::close(fd_);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void begin(int64_t step) { step_ = step; }

  /// Adds a record; its data are appended to what this returns.
  std::string& add(const Definition& what) {
    if (data_.size() >= kMostPartBytes) end_step(Frame::step_part);
    if (what.name.size() > 1024 || what.shape.size() > 16) throw std::runtime_error("a name of more than 1,024 bytes or a tensor of more than 16 dimensions");
    sequence_.push_back(&*definitions_.emplace(what.bytes(), static_cast<uint32_t>(definitions_.size())).first);
    return data_;
  }

  void end_step(Frame type) {
    std::string payload, key;
    signed_varint(payload, step_);
    for (const auto each : sequence_) raw(key, each->second);
    const auto [sequence, is_new] = sequences_.emplace(key, static_cast<uint32_t>(sequences_.size() + 1));
    if (!is_new) {
      varint(payload, sequence->second);
    } else {
      varint(payload, 0);
      varint(payload, sequence_.size());
      for (const auto each : sequence_) {
        varint(payload, each->second);
        if (each->second != written_) continue;
        text(payload, each->first);
        ++written_;
      }
    }
    payload += data_;
    data_.clear();
    sequence_.clear();
    write_frame(type, payload);
    if (type == Frame::whole_step) ++steps_;
  }

  void finish() {
    std::string payload;
    varint(payload, steps_);
    write_frame(Frame::end_mark, payload);
    if (::close(std::exchange(fd_, -1)) != 0) fail("cannot be closed");
  }

 private:
  static constexpr std::size_t kMostPartBytes = std::size_t{16} << 20;

  [[noreturn]] void fail(const char* what) { throw std::runtime_error(path_.string() + " " + what + ": " + std::strerror(errno)); }

  void write_frame(Frame type, const std::string& payload) {
    if (payload.size() > std::numeric_limits<uint32_t>::max()) throw std::runtime_error("a tensor of 4 GiB or more");
    const std::size_t start = frame_.size();
    raw(frame_, frame_head(static_cast<uint32_t>(payload.size()), type));
    frame_ += payload;
    raw(frame_, static_cast<uint64_t>(XXH3_64bits(frame_.data() + start, frame_.size() - start)));
    for (std::size_t done = 0; done < frame_.size();) {
      const ssize_t wrote = ::write(fd_, frame_.data() + done, frame_.size() - done);
      if (wrote < 0 && errno != EINTR) fail("cannot be written");
      if (wrote > 0) done += static_cast<std::size_t>(wrote);
    }
    frame_.clear();
  }

  using Numbers = std::unordered_map<std::string, uint32_t>;
  std::filesystem::path path_;
  int fd_ = -1;
  int64_t step_ = 0;
  uint64_t steps_ = 0;
  uint32_t written_ = 0;  ///< definitions
  Numbers definitions_, sequences_;
  std::vector<const std::pair<const std::string, uint32_t>*> sequence_;
  std::string data_, frame_;
};

// ---------------------------------------------------------------- what a led run reads of the reference's trace

struct Snapshot {
  std::map<std::string, at::Tensor> tensors;
  double updates = 0;
};

/// Of one trace, by step.
using Snapshots = std::map<int64_t, Snapshot>;

/// Reads bytes and never past their end.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : rest_(bytes) {}
  std::size_t left() const { return rest_.size(); }
  std::string_view take(uint64_t bytes) {
    if (bytes > rest_.size()) throw std::runtime_error("a record ends in mid-air");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  template <typename Number>
  Number raw() {
    Number number;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = raw<uint8_t>();
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    throw std::runtime_error("a number of more than 64 bits");
  }
  int64_t signed_varint() {
    const uint64_t value = varint();
    return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1));
  }
  std::vector<int64_t> signed_list(uint64_t count) {
    if (count > rest_.size()) throw std::runtime_error("a list longer than its trace");
    std::vector<int64_t> all(count);
    for (int64_t& each : all) each = signed_varint();
    return all;
  }

 private:
  std::string_view rest_;
};

inline Definition read_definition(std::string_view bytes) {
  Cursor in(bytes);
  Definition what;
  what.kind = static_cast<Kind>(in.raw<uint8_t>());
  what.phase = static_cast<Phase>(in.raw<uint8_t>());
  what.flags = in.raw<uint8_t>();
  what.dtype = static_cast<DType>(in.raw<uint8_t>());
  what.root = in.signed_varint();
  what.shape = in.signed_list(in.varint());
  what.name = std::string(in.take(in.varint()));
  if (what.kind > collective || what.dtype > int32) throw std::runtime_error("a record of an unknown kind");
  return what;
}

inline void read_record(const Definition& what, int64_t step, Cursor& in, Snapshots& kept) {
  if (what.kind == samples) {
    in.signed_list(in.varint());
  } else if (what.kind == random) {
    in.take(8);
    in.varint();
  } else if (what.kind == scalar) {
    const auto value = in.raw<double>();
    if (what.phase == Phase::snapshot && what.name == "updates") kept[step].updates = value;
  } else if (what.kind == collective) {
    in.take(16);
  } else {
    const bool wide = what.dtype == float64 || what.dtype == int64 || what.dtype == int32;
    in.take(8);
    if ((what.flags & statistics) != 0) {
      in.take(wide ? 24 : 12);
      in.varint();
    }
    if ((what.flags & with_dot) != 0) in.take(8);
    if ((what.flags & with_ids) != 0) in.signed_list(in.varint());
    if ((what.flags & with_values) == 0) return;
    uint64_t bytes = kBytes[what.dtype];
    for (const int64_t extent : what.shape) {
      if (extent < 0 || (extent > 0 && bytes > (uint64_t{1} << 40) / static_cast<uint64_t>(extent))) throw std::runtime_error("a tensor of an impossible size");
      bytes *= static_cast<uint64_t>(extent);
    }
    const std::string_view values = in.take(bytes);
    if (what.phase != Phase::snapshot) return;
    const auto type = at::TensorOptions().dtype(Host::kTypes[what.dtype]);
    kept[step].tensors[what.name] = at::from_blob(const_cast<char*>(values.data()), what.shape, type).clone();
  }
}

/// Checks each frame's length and checksum. A trace that is cut short is read up to there.
inline Snapshots read_trace(const std::filesystem::path& path) {
  Snapshots kept;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path.string() + " cannot be read: " + std::strerror(errno));
  const std::string file(std::istreambuf_iterator<char>(in), {});
  const std::string_view bytes = file;
  if (!bytes.starts_with(std::string_view(kMagic, 8))) throw std::runtime_error(path.string() + " is not a trace");
  std::vector<Definition> definitions;
  std::vector<std::vector<uint64_t>> sequences;
  for (std::size_t at = 12; bytes.size() - at >= 16;) {
    Cursor head(bytes.substr(at));
    const uint64_t length = head.raw<uint32_t>();
    const auto type = head.raw<uint8_t>();
    if (bytes.size() - at < length + 16) break;
    const std::string_view frame = bytes.substr(at, length + 8);
    if (Cursor(bytes.substr(at + length + 8)).raw<uint64_t>() != XXH3_64bits(frame.data(), frame.size())) {
      throw std::runtime_error(path.string() + " is damaged at byte " + std::to_string(at));
    }
    at += length + 16;
    if (type == Frame::header || type == Frame::end_mark) continue;
    Cursor payload(frame.substr(8));
    const int64_t step = payload.signed_varint();
    uint64_t number = payload.varint();
    if (number == 0) {
      std::vector<uint64_t>& sequence = sequences.emplace_back();
      for (uint64_t count = payload.varint(); count > 0; --count) {
        sequence.push_back(payload.varint());
        if (sequence.back() == definitions.size()) definitions.push_back(read_definition(payload.take(payload.varint())));
        if (sequence.back() >= definitions.size()) throw std::runtime_error(path.string() + ": a record without a definition");
      }
      number = sequences.size();
    }
    if (number > sequences.size()) throw std::runtime_error(path.string() + ": a step without a sequence");
    for (const uint64_t each : sequences[number - 1]) read_record(definitions[each], step, payload, kept);
  }
  return kept;
}

inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

inline std::string json_text(std::string_view from) {
  std::string out = "\"";
  for (const char c : from) {
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c) & 0xff);
    const bool plain = (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\');
    out += plain ? std::string(1, c) : std::string(escaped);
  }
  return out + '"';
}

inline std::string json_number(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.17g", value);
  return digits;
}

// ---------------------------------------------------------------- optimizers

/// What can be declared of one group's options; `name` is empty if `compare` would recompute its update wrongly.
struct OptimizerFacts {
  std::string name;
  double momentum = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool operator==(const OptimizerFacts&) const = default;
};

inline OptimizerFacts facts_of(const torch::optim::OptimizerOptions& options) {
  OptimizerFacts facts;
  const auto take = [&facts](const auto& adam, const char* name) {
    facts = {adam.amsgrad() ? "" : name, 0, std::get<0>(adam.betas()), std::get<1>(adam.betas()), adam.eps(), adam.weight_decay()};
  };
  if (const auto* sgd = dynamic_cast<const torch::optim::SGDOptions*>(&options)) {
    facts = {sgd->nesterov() || sgd->dampening() != 0 ? "" : "sgd", sgd->momentum(), 0, 0, 0, sgd->weight_decay()};
  } else if (const auto* adam = dynamic_cast<const torch::optim::AdamOptions*>(&options)) {
    take(*adam, "adam");
  } else if (const auto* adamw = dynamic_cast<const torch::optim::AdamWOptions*>(&options)) {
    take(*adamw, "adamw");
  }
  return facts;
}

/// The optimizer's state of one parameter, as traces name it; moments that it does not have are undefined tensors.
struct Moments {
  at::Tensor first = {}, second = {};
  std::optional<int64_t> updates = {};
};

inline Moments moments_of(const torch::optim::OptimizerParamState& state) {
  if (const auto* sgd = dynamic_cast<const torch::optim::SGDParamState*>(&state)) return {sgd->momentum_buffer()};
  if (const auto* adam = dynamic_cast<const torch::optim::AdamParamState*>(&state)) return {adam->exp_avg(), adam->exp_avg_sq(), adam->step()};
  if (const auto* adamw = dynamic_cast<const torch::optim::AdamWParamState*>(&state)) return {adamw->exp_avg(), adamw->exp_avg_sq(), adamw->step()};
  return {};
}

/// Null if the optimizer is of another kind, or had no state.
inline std::unique_ptr<torch::optim::OptimizerParamState> state_of(const torch::optim::OptimizerOptions& options, const Moments& moments) {
  if (!moments.first.defined()) return nullptr;
  const auto filled = [&moments](auto state) {
    state->exp_avg(moments.first);
    state->exp_avg_sq(moments.second);
    state->step(moments.updates.value_or(0));
    return state;
  };
  if (dynamic_cast<const torch::optim::AdamOptions*>(&options)) return filled(std::make_unique<torch::optim::AdamParamState>());
  if (dynamic_cast<const torch::optim::AdamWOptions*>(&options)) return filled(std::make_unique<torch::optim::AdamWParamState>());
  if (!dynamic_cast<const torch::optim::SGDOptions*>(&options)) return nullptr;
  auto state = std::make_unique<torch::optim::SGDParamState>();
  state->momentum_buffer(moments.first);
  return state;
}

}  // namespace detail

/// Writes one rank's trace. The model and the optimizer must outlive it; copies are not made of them.
class Probe {
 public:
  Probe(torch::nn::Module& model, torch::optim::Optimizer& optimizer, Options options)
      : model_(model), optimizer_(optimizer), options_(std::move(options)), step_(options_.first_step), folder_(detail::environment("LOCKSTEP_TRACE")) {
    if (folder_.empty() || detail::environment("LOCKSTEP_LEVEL") == "off") return;
    try {
      read_environment();
      open(folder_);
    } catch (const std::exception& error) {
      turn_off(error.what());
    }
  }
  ~Probe() { finish(); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  /// Is anything recorded?
  bool enabled() const { return writer_ != nullptr; }
  /// The dtype of the model's first parameter.
  at::ScalarType dtype() const { return model_.parameters().empty() ? at::kFloat : model_.parameters().front().scalar_type(); }

  /// Begins the step, or goes on with its next micro-step: sample ids of the rows of this rank.
  void rows(const std::vector<int64_t>& ids) {
    record([&] { ids_.insert(ids_.end(), ids.begin(), ids.end()); });
  }
  /// What each row holds: a hash of each row of `batch` ([rows, …]).
  void inputs(const at::Tensor& batch) {
    record([&] {
      const detail::Host host(batch);
      const int64_t rows = host.tensor.size(0);
      const at::Tensor hashes = at::empty({rows}, at::kLong);
      const auto* row = static_cast<const char*>(host.tensor.const_data_ptr());
      for (int64_t i = 0; i < rows; ++i, row += host.bytes() / static_cast<std::size_t>(rows)) {
        hashes.data_ptr<int64_t>()[i] = static_cast<int64_t>(detail::tensor_hash(host.dtype, row, host.tensor.sizes().slice(1)));
      }
      by_row(detail::Phase::inputs, "inputs", hashes);
    });
  }
  /// Labels of the rows: int64 [rows] or [rows, positions].
  void labels(const at::Tensor& labels) {
    record([&] { by_row(detail::Phase::inputs, "labels", labels); });
  }
  /// A control value beside the learning rate, equal on all ranks.
  void control(const std::string& name, double value) {
    record([&] { scalar(detail::Phase::control, name, value, true); });
  }
  /// Losses of this micro-step's rows, [rows]; the rank's loss is row_weight * their sum (over all micro-steps).
  void row_losses(const at::Tensor& losses, double row_weight) {
    record([&] {
      row_losses_.push_back(detail::Host(losses).tensor.reshape({-1}));
      row_weight_ = row_weight;
    });
  }
  /// Gradients of this rank alone, before any reduction.
  void local() {
    record([&] { gradients(detail::Phase::local_gradients, false); });
  }
  /// Gradients after the reduction, before clipping.
  void reduced() {
    record([&] { scalar(detail::Phase::gradient_norm, "gradient_norm", gradients(detail::Phase::reduced_gradients, options_.replicated), options_.replicated); });
  }
  /// Gradients that the optimizer takes, after clipping.
  void applied() {
    record([&] { gradients(detail::Phase::applied_gradients, options_.replicated); });
  }
  /// Ends the step, after the update. `loss`: this rank's.
  void step(const at::Tensor& loss) {
    record([&] { scalar(detail::Phase::loss, "loss", loss.detach().to(at::kDouble).item<double>(), false); });
    step();
  }
  void step(double loss) {
    record([&] { scalar(detail::Phase::loss, "loss", loss, false); });
    step();
  }
  void step() {
    record([&] { end_records(true); });
    if (writer_ && state_ == State::open) state_ = State::held;
    if (writer_) ++step_;
  }
  /// A metric of the step that ended last: of rank 0, or equal on all ranks.
  void metric(const std::string& name, double value) {
    guard([&] {
      start();
      if (state_ == State::held && recorded_) scalar(detail::Phase::evaluation, name, value, false);
    });
  }

  /// Runs a collective and records it: operation (`all_reduce`, …), tensors that go in, tensors that come out, and what makes them.
  template <typename Run>
  void collective(const std::string& operation, const Call& call, const std::vector<at::Tensor>& in, const std::vector<at::Tensor>& out, Run run) {
    uint64_t before = 0;
    record([&] { before = sum_of_hashes(in); });
    run();
    record([&] {
      const detail::Host shape_of(!in.empty() ? in.front() : out.empty() ? at::empty({0}) : out.front());
      detail::Definition what{detail::collective, detail::Phase::collective, 0, shape_of.dtype, call.root, shape_of.tensor.sizes().vec(), operation};
      what.reduction = call.reduction;
      what.group = call.group;
      what.tag = call.tag;
      std::string& data = writer_->add(what);
      detail::raw(data, before);
      detail::raw(data, sum_of_hashes(out));
    });
  }

  /// Writes what is left and the end mark, as the destructor does. A step without step() is one that an exception cut short.
  void finish() {
    guard([&] {
      start();
      if (state_ == State::open && recorded_) {
        end_records(false);
        writer_->end_step(detail::Frame::partial_step);
      } else {
        flush();
        writer_->finish();
      }
      writer_.reset();
      if (!led_by_.empty()) write_led();
    });
  }

 private:
  enum class Level { hash, stats, full };
  /// A step is held after step(): metrics may follow. `between`: nothing to write.
  enum class State { before, between, open, held };

  void read_environment() {
    const std::string level = detail::environment("LOCKSTEP_LEVEL"), every = detail::environment("LOCKSTEP_EVERY");
    led_by_ = detail::environment("LOCKSTEP_LED_BY");
    if (!folder_.is_absolute()) throw std::runtime_error("LOCKSTEP_TRACE must name an absolute folder, not " + folder_.string());
    const std::map<std::string, Level> levels = {{"", Level::hash}, {"hash", Level::hash}, {"stats", Level::stats}, {"full", Level::full}};
    if (!levels.contains(level)) throw std::runtime_error("LOCKSTEP_LEVEL must be off, hash, stats or full, not " + level);
    level_ = levels.at(level);
    if (!every.empty()) every_ = number_in("LOCKSTEP_EVERY", every);
    if (every_ < 1) throw std::runtime_error("LOCKSTEP_EVERY must be 1 or more, not " + every);
    const std::string steps = detail::environment("LOCKSTEP_SNAPSHOTS");
    automatic_ = steps.empty() || steps == "auto";
    if (automatic_ || steps == "none") return;
    std::istringstream list(steps);
    for (std::string each; std::getline(list, each, ',');) snapshots_.insert(number_in("LOCKSTEP_SNAPSHOTS", each));
  }
  /// Are all values of a step kept?
  bool keeps(int64_t step) const {
    if (!automatic_) return snapshots_.contains(step);
    constexpr int64_t kMostBytes = int64_t{64} << 20;
    int64_t bytes = 0;  // of weights before and after, gradients and moments
    for (const at::Tensor& each : model_.parameters()) bytes += 6 * static_cast<int64_t>(each.nbytes());
    const bool power_of_ten = step == 1 || step == 10 || step == 100 || step == 1000 || step == 10'000 || step == 100'000;
    return step == 0 || bytes <= kMostBytes / (step + 1) || (power_of_ten && bytes <= kMostBytes);
  }
  static int64_t number_in(const char* name, const std::string& text) {
    char* end = nullptr;
    const int64_t number = std::strtoll(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0') throw std::runtime_error(std::string(name) + " must hold whole numbers, not " + text);
    return number;
  }

  void open(const std::filesystem::path& folder) {
    constexpr std::array<const char*, 3> kNames = {"hash", "stats", "full"};
    const std::string run = options_.run.empty() ? folder.string() : options_.run;
    const std::string header = "{\"config_hash\":" + detail::json_text(run) + ",\"declared\":" + declared() + ",\"level\":\"" +
                               kNames[static_cast<std::size_t>(level_)] + "\",\"rank\":" + std::to_string(options_.rank) +
                               ",\"started_by\":\"lockstep_probe.h\",\"trainer\":\"foreign\",\"world_size\":" + std::to_string(options_.world_size) + "}";
    writer_ = std::make_unique<detail::Writer>(folder / ("rank-" + std::to_string(options_.rank) + ".trace"), header);
    state_ = State::before;
  }

  std::string declared() {
    std::string json = "{\"gradient_reduction\":\"" + std::string(options_.sum_gradients ? "sum" : "mean") + '"';
    const auto add = [&json](const std::string& key, const std::string& value) { json += ",\"" + key + "\":" + value; };
    const auto& groups = optimizer_.param_groups();
    if (!groups.empty()) {
      const detail::OptimizerFacts facts = detail::facts_of(groups.front().options());
      const double rate = groups.front().options().get_lr();
      bool alike = true;
      for (const auto& group : groups) {
        detail::OptimizerFacts other = detail::facts_of(group.options());
        other.weight_decay = facts.weight_decay;
        alike = alike && other == facts;
      }
      if (rate > 0) add("base_rate", detail::json_number(rate));
      if (!facts.name.empty() && alike) {
        add("optimizer", "{\"name\":\"" + facts.name + "\",\"momentum\":" + detail::json_number(facts.momentum) + ",\"betas\":[" +
                             detail::json_number(facts.beta1) + "," + detail::json_number(facts.beta2) + "],\"eps\":" + detail::json_number(facts.eps) +
                             ",\"weight_decay\":" + detail::json_number(facts.weight_decay) + "}");
      }
      if (groups.size() > 1 && rate > 0) add("parameters", declared_groups(rate));
    }
    if (options_.clip_norm > 0) add("clip_norm", detail::json_number(options_.clip_norm));
    if (options_.accumulation > 1) add("accumulation", std::to_string(options_.accumulation));
    if (options_.global_batch > 0) add("global_batch", std::to_string(options_.global_batch));
    const at::ScalarType type = dtype();
    const char* precision = type == at::kFloat ? "float32" : type == at::kDouble ? "float64" : type == at::kBFloat16 ? "bfloat16" : "float16";
    add("precision", std::string("\"") + precision + '"');
    return json + "}";
  }
  std::string declared_groups(double rate) {
    std::map<const void*, std::string> names;
    for (const auto& each : model_.named_parameters()) names[each.value().unsafeGetTensorImpl()] = each.key();
    std::string list;
    for (const auto& group : optimizer_.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        const auto name = names.find(parameter.unsafeGetTensorImpl());
        if (name == names.end()) continue;
        list += (list.empty() ? "" : ",") + ("{\"prefix\":" + detail::json_text(name->second)) + ",\"rate_factor\":" +
                detail::json_number(group.options().get_lr() / rate) + ",\"weight_decay\":" + detail::json_number(detail::facts_of(group.options()).weight_decay) + "}";
      }
    }
    return "[" + list + "]";
  }

  void turn_off(const std::string& why) {
    std::fprintf(stderr, "lockstep_probe: rank %lld: %s; nothing is recorded from here on, and training goes on\n", static_cast<long long>(options_.rank), why.c_str());
    writer_.reset();
  }
  template <typename Work>
  void guard(Work work) {
    if (!writer_) return;
    try {
      const at::NoGradGuard no_gradient;
      work();
    } catch (const std::exception& error) {
      turn_off(error.what());
    }
  }
  /// Does the work within the step that is open, or that begins with it; not if the step is left out.
  template <typename Work>
  void record(Work work) {
    guard([&] {
      if (state_ != State::open) begin();
      if (recorded_) work();
    });
  }

  /// The parameters before the first step. They too are held, for metrics.
  void start() {
    if (state_ != State::before) return;
    writer_->begin(step_ - 1);
    recorded_ = true;
    keeps_ = keeps(step_);
    weights();
    state_ = State::held;
  }
  void flush() {
    if (state_ == State::held && recorded_) writer_->end_step(detail::Frame::whole_step);
    state_ = State::between;
  }
  void begin() {
    start();
    flush();
    keeps_ = keeps(step_);
    recorded_ = keeps_ || step_ % every_ == 0;
    state_ = State::open;
    ids_.clear();
    row_losses_.clear();
    rate_.reset();
    if (!led_by_.empty()) lead();
    if (!recorded_) return;
    writer_->begin(step_);
    if (keeps_) {
      weights(detail::Phase::snapshot);
      moments(detail::Phase::snapshot);
    }
    engine_ = engine();
    engine_hash_ = hash_of(*engine_);
  }
  /// All that is known at the end of the step alone. `updated`: no exception came before the update.
  void end_records(bool updated) {
    if (!ids_.empty()) {
      detail::id_list(writer_->add({detail::samples, detail::Phase::samples, 0, detail::int64, -1, {}, "samples"}), ids_);
    }
    if (const uint64_t draws = draws_since(*engine_); draws > 0) {  // else its state plays no part in the step
      std::string& data = writer_->add({detail::random, detail::Phase::random, 0, detail::float32, -1, {}, "process/torch"});
      detail::raw(data, engine_hash_);
      detail::varint(data, draws);
    }
    scalar(detail::Phase::control, "learning_rate", rate_.value_or(rate()), true);
    if (!row_losses_.empty()) {
      by_row(detail::Phase::loss, "row_losses", at::cat(row_losses_));
      scalar(detail::Phase::loss, "row_weight", row_weight_, false);
    }
    if (!updated) return;
    weights();
    if (keeps_ || level_ == Level::full) moments(detail::Phase::optimizer_state);
  }

  double rate() { return optimizer_.param_groups().empty() ? 0 : optimizer_.param_groups().front().options().get_lr(); }

  static at::mt19937 engine() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    return at::check_generator<at::CPUGeneratorImpl>(generator)->engine();
  }
  static uint64_t hash_of(const at::mt19937& engine) {
    const at::mt19937_data_pod data = engine.data();
    return XXH3_64bits_withSeed(data.state_.data(), sizeof data.state_, data.next_);
  }
  /// Numbers drawn since; 2^20 if there were more, or if the generator was seeded since.
  static uint64_t draws_since(at::mt19937 then) {
    constexpr uint64_t kMost = uint64_t{1} << 20;
    const at::mt19937_data_pod now = engine().data();
    for (uint64_t draws = 0; draws < kMost;) {
      const at::mt19937_data_pod data = then.data();
      if (data.state_ == now.state_ && data.left_ >= now.left_) return draws + static_cast<uint64_t>(data.left_ - now.left_);
      for (int left = data.left_; left > 0; --left, ++draws) then();  // the last of these makes the next 624 numbers
    }
    return kMost;
  }

  void scalar(detail::Phase phase, const std::string& name, double value, bool alike) {
    const uint8_t flags = alike ? detail::alike : 0;
    detail::raw(writer_->add({detail::scalar, phase, flags, detail::float64, -1, {}, name}), value);
  }

  detail::Stats tensor(detail::Phase phase, const std::string& name, const at::Tensor& value, bool alike, const std::vector<int64_t>& ids = {}) {
    const detail::Host host(value);
    // Rank 0 writes out what is equal on all ranks; the others leave the hash that shows whether it is.
    const bool spoken_for = alike && options_.rank != 0;
    detail::Definition what{detail::tensor, phase, 0, host.dtype, -1, host.tensor.sizes().vec(), name};
    const bool with_statistics = !spoken_for || level_ != Level::hash, with_values = level_ == Level::full || (keeps_ && !spoken_for);
    what.flags = static_cast<uint8_t>((alike ? detail::alike : 0) | (with_statistics ? detail::statistics : 0) | (ids.empty() ? 0 : detail::with_ids) |
                                      (with_values ? detail::with_values : 0));
    const detail::Stats stats = host.stats();
    std::string& data = writer_->add(what);
    detail::raw(data, stats.hash);
    if (with_statistics) {
      const bool wide = host.dtype == detail::float64 || host.dtype == detail::int64 || host.dtype == detail::int32;
      for (const double number : {stats.norm, stats.min, stats.max}) {
        if (wide) {
          detail::raw(data, number);
        } else {
          detail::raw(data, static_cast<float>(number));
        }
      }
      detail::varint(data, stats.nonfinite);
    }
    if (!ids.empty()) detail::id_list(data, ids);
    if (with_values) detail::append(data, host.tensor.const_data_ptr(), host.bytes());
    return stats;
  }
  /// One value or more for each row of the step so far.
  void by_row(detail::Phase phase, const std::string& name, const at::Tensor& values) {
    if (static_cast<std::size_t>(values.size(0)) != ids_.size()) {
      throw std::runtime_error(name + " of " + std::to_string(values.size(0)) + " rows, but rows() named " + std::to_string(ids_.size()));
    }
    tensor(phase, name, values, false, ids_);
  }

  /// Their norm, of rank 0's or own statistics.
  double gradients(detail::Phase phase, bool alike) {
    rate_ = rate();
    double norm = 0;
    for (const auto& each : model_.named_parameters()) {
      if (!each.value().grad().defined()) continue;
      const detail::Stats stats = tensor(phase, each.key(), each.value().grad(), alike);
      norm = std::hypot(norm, stats.norm);
    }
    return norm;
  }
  /// Buffers are each rank's own: statistics of a rank's rows differ.
  void weights(detail::Phase phase = detail::Phase::parameters) {
    for (const auto& each : model_.named_parameters()) tensor(phase, each.key(), each.value(), options_.replicated);
    for (const auto& each : model_.named_buffers()) tensor(phase, "buffer/" + each.key(), each.value(), false);
  }
  void moments(detail::Phase phase) {
    std::optional<int64_t> updates;
    for (const auto& each : model_.named_parameters()) {
      const auto found = optimizer_.state().find(each.value().unsafeGetTensorImpl());
      if (found == optimizer_.state().end()) continue;
      const detail::Moments moments = detail::moments_of(*found->second);
      if (moments.updates) updates = std::max(updates.value_or(0), *moments.updates);
      if (moments.first.defined()) tensor(phase, "first_moment/" + each.key(), moments.first, options_.replicated);
      if (moments.second.defined()) tensor(phase, "second_moment/" + each.key(), moments.second, options_.replicated);
    }
    scalar(phase, "updates", static_cast<double>(updates.value_or(phase == detail::Phase::snapshot ? step_ : step_ + 1)), options_.replicated);
  }

  static uint64_t sum_of_hashes(const std::vector<at::Tensor>& tensors) {
    uint64_t sum = 0;
    for (const at::Tensor& each : tensors) sum += detail::Host(each).hash();
    return sum;
  }

  // ---- a led run

  /// Puts what the reference's step began with into the model and the optimizer. The first thing that does not fit ends it, and is said.
  void lead() {
    if (!led_problem_.empty()) return;
    try {
      if (!reference_) reference_ = detail::read_trace(led_by_ / "rank-0.trace");
      const auto found = reference_->find(step_);
      if (found == reference_->end() || found->second.tensors.empty()) return;
      lay_in(found->second);
      led_ += (led_.empty() ? "" : ",") + std::to_string(step_);
    } catch (const std::exception& error) {
      led_problem_ = error.what();
      std::fprintf(stderr, "lockstep_probe: rank %lld: not led by %s from step %lld on: %s\n", static_cast<long long>(options_.rank), led_by_.c_str(),
                   static_cast<long long>(step_), error.what());
    }
  }
  void lay_in(const detail::Snapshot& snapshot) {
    const auto kept_for = [&](const std::string& name, const at::Tensor& like) -> at::Tensor {
      const auto found = snapshot.tensors.find(name);
      if (found == snapshot.tensors.end()) return {};
      if (found->second.sizes() != like.sizes()) throw std::runtime_error("its step " + std::to_string(step_) + " holds " + name + " in another shape");
      return found->second.to(like.device(), like.scalar_type(), false, true);
    };
    std::map<const void*, std::string> names;
    for (const auto& each : model_.named_parameters()) {
      const at::Tensor value = kept_for(each.key(), each.value());
      if (!value.defined()) throw std::runtime_error("its step " + std::to_string(step_) + " has no " + each.key());
      each.value().copy_(value);
      names[each.value().unsafeGetTensorImpl()] = each.key();
    }
    for (const auto& each : model_.named_buffers()) {
      if (const at::Tensor value = kept_for("buffer/" + each.key(), each.value()); value.defined()) each.value().copy_(value);
    }
    for (auto& group : optimizer_.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        const std::string& name = names[parameter.unsafeGetTensorImpl()];
        const detail::Moments moments = {kept_for("first_moment/" + name, parameter), kept_for("second_moment/" + name, parameter), static_cast<int64_t>(snapshot.updates)};
        if (auto state = detail::state_of(group.options(), moments)) optimizer_.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
      }
    }
  }
  /// rank-<r>.probe.json.
  void write_led() {
    std::ofstream out(folder_ / ("rank-" + std::to_string(options_.rank) + ".probe.json"));
    out << "{\"format\":1,\"tier\":\"header\",\"samples\":true,\"loss\":true,\"done\":true,\"world_size\":" << options_.world_size << ",\"steps\":" << step_
        << ",\"led\":{\"folder\":" << detail::json_text(led_by_.string()) << ",\"steps\":[" << led_ << "],\"problem\":" << detail::json_text(led_problem_) << "}}";
  }

  torch::nn::Module& model_;
  torch::optim::Optimizer& optimizer_;
  Options options_;
  int64_t step_ = 0, every_ = 1;
  std::filesystem::path folder_;
  bool automatic_ = true;
  std::set<int64_t> snapshots_;
  Level level_ = Level::hash;
  State state_ = State::before;
  bool recorded_ = false, keeps_ = false;
  std::unique_ptr<detail::Writer> writer_;
  std::filesystem::path led_by_;
  std::optional<detail::Snapshots> reference_;  ///< what leads; read before the first step
  std::string led_, led_problem_;               ///< steps that were led, with commas; why no more are
  // Of the step that is open:
  std::vector<int64_t> ids_;
  std::vector<at::Tensor> row_losses_;
  double row_weight_ = 0;
  std::optional<double> rate_;
  std::optional<at::mt19937> engine_;
  uint64_t engine_hash_ = 0;
};

#undef LOCKSTEP_PROBE_INLINE

}  // namespace lockstep_probe
