#include "harness/judge/trace/record.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "harness/base/numbers.h"
#include "harness/base/text.h"

namespace lockstep {
namespace {

template <typename Stored, typename Number>
std::vector<double> converted(const Record& record, Number number) {
  std::vector<double> values(record.payload.size() / sizeof(Stored));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, &record.payload[i * sizeof(Stored)], sizeof stored);
    values[i] = number(stored);
  }
  return values;
}

double plain(auto value) { return static_cast<double>(value); }

/// By number.
constexpr auto kPhaseNames = std::to_array<const char*>(
    {"snapshot", "samples", "random", "control", "energies", "loss", "local gradients", "collective", "reduced gradients",
     "gradient norm", "parameters", "evaluation", "term sums", "applied gradients", "optimizer state", "inputs",
     "gradient parts", "averaged weights"});
static_assert(kPhaseNames.size() == static_cast<std::size_t>(kLastPhase) + 1);

struct DTypeFacts {
  const char* name;
  std::size_t bytes;
  double epsilon;
};
/// By number.
constexpr auto kDTypes = std::to_array<DTypeFacts>({{"float32", 4, 0x1p-23},
                                                    {"float64", 8, 0x1p-52},
                                                    {"int64", 8, 0},
                                                    {"bfloat16", 2, 0x1p-7},
                                                    {"bool", 1, 0},
                                                    {"float16", 2, 0x1p-10},
                                                    {"int32", 4, 0}});
static_assert(kDTypes.size() == static_cast<std::size_t>(kLastDType) + 1);

const DTypeFacts& facts_of(DType dtype) {
  static constexpr DTypeFacts kUnknown{"unknown", 1, 0};
  const auto number = static_cast<std::size_t>(dtype);
  return number < kDTypes.size() ? kDTypes[number] : kUnknown;
}

}  // namespace

int64_t elements_of(const std::vector<int64_t>& shape) {
  constexpr int64_t kMostElements = int64_t{1} << 48;
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || extent > kMostElements || (extent > 0 && elements > kMostElements / extent)) return -1;
    elements *= extent;
  }
  return elements;
}

double apart(const TensorStats& a, const TensorStats& b) {
  const auto gap = [](double x, double y) { return x == y ? 0 : std::isnan(x - y) ? kInfinity : std::abs(x - y); };
  return std::max({gap(a.norm, b.norm), gap(a.min, b.min), gap(a.max, b.max)});
}

bool keeps_values(const Record& record) {
  return record.payload.size() == static_cast<std::size_t>(elements_of(record.shape)) * size_of(record.dtype);
}

std::optional<std::vector<double>> values_of(const Record& record) {
  const bool tensor = !record.is_scalar && record.phase != Phase::collective && record.phase != Phase::samples &&
                      record.phase != Phase::random;
  if (!tensor || !keeps_values(record)) return std::nullopt;
  switch (record.dtype) {
    case DType::float32:
      return converted<float>(record, plain<float>);
    case DType::float64:
      return converted<double>(record, plain<double>);
    case DType::int64:
      return converted<int64_t>(record, plain<int64_t>);
    case DType::int32:
      return converted<int32_t>(record, plain<int32_t>);
    case DType::boolean:
      return converted<uint8_t>(record, plain<uint8_t>);
    case DType::float16:
      return converted<uint16_t>(record, value_of_float16);
    case DType::bfloat16:
      return converted<uint16_t>(record, [](uint16_t bits) -> double {
        return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
      });
  }
  return std::nullopt;
}

std::vector<int64_t> whole_numbers_of(const Record& record) {
  std::vector<int64_t> numbers(record.payload.size() / sizeof(int64_t));
  std::memcpy(numbers.data(), record.payload.data(), numbers.size() * sizeof(int64_t));
  return numbers;
}

bool is_floating(DType dtype) { return epsilon_of(dtype) > 0; }

bool equal_as_numbers(const Record& a, const Record& b) {
  if (a.dtype != b.dtype || a.shape != b.shape || !is_floating(a.dtype)) return false;
  const auto x = values_of(a), y = values_of(b);
  return x && y && *x == *y;
}

// A positional hash in two levels and four statistics, in one pass over memory.
//
// Level one takes a block of 1,024 words w_c of 32 bits to S = sum (w_c ^ A[c]) * B[c] mod 2^64 with fixed
// random masks A and odd keys B: one changed word changes S with certainty, since an odd key has an inverse.
// Level two adds fmix64(S + key(dtype, shape, row, block)) over all blocks: a sum, so that shards of rows
// merge in any order.
namespace {

constexpr std::size_t kBlockWords = 1024;
constexpr std::size_t kLanes = 16;

constexpr uint64_t fmix64(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

constexpr uint64_t splitmix64(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// Keys as halves, because the product of a 32-bit word and a 64-bit key is two products that vectorise well.
struct Keys {
  alignas(64) std::array<uint32_t, kBlockWords> mask{}, low{}, high{};
};

constexpr Keys make_keys() {
  Keys keys;
  uint64_t state = 0x6c6f636b73746570ULL;
  for (std::size_t i = 0; i < kBlockWords; ++i) {
    keys.mask[i] = static_cast<uint32_t>(splitmix64(state) >> 32);
    const uint64_t key = splitmix64(state) | 1;
    keys.low[i] = static_cast<uint32_t>(key);
    keys.high[i] = static_cast<uint32_t>(key >> 32);
  }
  return keys;
}

constexpr Keys kKeys = make_keys();

/// Lane l sums the squares of elements l, l + 16, … of each block: a fixed order whatever the width of the
/// machine's vectors.
struct Totals {
  alignas(64) std::array<double, kLanes> squares{};
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  uint64_t nonfinite = 0;
};

// Tensor memory is read both as numbers and as words.
typedef uint32_t Word __attribute__((may_alias));
typedef uint16_t HalfWord __attribute__((may_alias));
typedef float Float4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef double Double4 __attribute__((vector_size(32)));

#define LOCKSTEP_INLINE __attribute__((always_inline)) inline

template <typename Source>
LOCKSTEP_INLINE uint64_t hash_words(const Source* words, std::size_t count) {
  uint64_t low = 0;
  uint32_t high = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const uint32_t word = words[i] ^ kKeys.mask[i];
    low += static_cast<uint64_t>(word) * kKeys.low[i];
    high += word * kKeys.high[i];
  }
  return low + (static_cast<uint64_t>(high) << 32);
}

/// Statistics of a block, element by element, leaving out what is not finite.
template <typename Load>
LOCKSTEP_INLINE void add_statistics(std::size_t count, Totals& totals, Load load) {
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

/// Floats ordered as integers: minimum and maximum then need no care for NaN and vectorise.
LOCKSTEP_INLINE int32_t order_of(uint32_t bits) {
  const auto value = static_cast<int32_t>(bits);
  return value ^ ((value >> 31) & 0x7fffffff);
}
LOCKSTEP_INLINE double value_of_order(int32_t order) {
  return std::bit_cast<float>(static_cast<uint32_t>(order ^ ((order >> 31) & 0x7fffffff)));
}

LOCKSTEP_INLINE void add_squares(const float* values, std::size_t count, Totals& totals) {
  Double4 lanes[4];
  std::memcpy(lanes, totals.squares.data(), sizeof lanes);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t j = 0; j < 4; ++j) {
      const Double4 value =
          __builtin_convertvector(*reinterpret_cast<const Float4*>(values + i + 4 * j), Double4);
      lanes[j] += value * value;
    }
  }
  std::memcpy(totals.squares.data(), lanes, sizeof lanes);
  for (; i < count; ++i) totals.squares[i % kLanes] += static_cast<double>(values[i]) * values[i];
}

LOCKSTEP_INLINE void add_float32(const void* data, std::size_t count, Totals& totals) {
  const auto* words = static_cast<const Word*>(data);
  const auto* values = static_cast<const float*>(data);
  int32_t least = std::numeric_limits<int32_t>::max(), most = std::numeric_limits<int32_t>::min();
  for (std::size_t i = 0; i < count; ++i) {
    const int32_t order = order_of(words[i]);
    least = order < least ? order : least;
    most = order > most ? order : most;
  }
  constexpr int32_t kInfinity = 0x7f800000;
  if (most >= kInfinity || least <= ~kInfinity) {
    add_statistics(count, totals, [&](std::size_t i) { return static_cast<double>(values[i]); });
  } else if (count > 0) {
    add_squares(values, count, totals);
    totals.min = std::min(totals.min, value_of_order(least));
    totals.max = std::max(totals.max, value_of_order(most));
  }
}

LOCKSTEP_INLINE void add_block(DType dtype, const void* data, std::size_t count, Totals& totals) {
  const auto* halves = static_cast<const HalfWord*>(data);
  switch (dtype) {
    case DType::float32:
      return add_float32(data, count, totals);
    case DType::float64:
      return add_statistics(count, totals, [&](std::size_t i) { return static_cast<const double*>(data)[i]; });
    case DType::int64:
      return add_statistics(count, totals,
                            [&](std::size_t i) { return static_cast<double>(static_cast<const int64_t*>(data)[i]); });
    case DType::bfloat16:
      return add_statistics(count, totals, [&](std::size_t i) -> double {
        return std::bit_cast<float>(static_cast<uint32_t>(halves[i]) << 16);
      });
    case DType::float16:
      return add_statistics(count, totals, [&](std::size_t i) { return value_of_float16(halves[i]); });
    case DType::int32:
      return add_statistics(count, totals, [&](std::size_t i) {
        return static_cast<double>(static_cast<int32_t>(static_cast<const Word*>(data)[i]));
      });
    case DType::boolean:
      return add_statistics(count, totals, [&](std::size_t i) { return static_cast<const uint8_t*>(data)[i] ? 1.0 : 0.0; });
  }
}

LOCKSTEP_INLINE uint64_t hash_block(std::size_t element_bytes, const void* data, std::size_t count) {
  if (element_bytes == 1) return hash_words(static_cast<const uint8_t*>(data), count);
  if (element_bytes == 2) return hash_words(static_cast<const HalfWord*>(data), count);
  return hash_words(static_cast<const Word*>(data), count * element_bytes / 4);
}

/// One row of `count` elements: the sum of its blocks' mixed hashes. `totals`: or null, where nobody asks for statistics.
LOCKSTEP_INLINE uint64_t row_of(DType dtype, const void* data, std::size_t count, uint64_t row_key,
                                Totals* totals) {
  const std::size_t element_bytes = size_of(dtype);
  const std::size_t block = element_bytes == 8 ? kBlockWords / 2 : kBlockWords;
  uint64_t hash = 0;
  std::size_t done = 0;
  do {
    const std::size_t here = std::min(block, count - done);
    const void* start = here == 0 ? data : static_cast<const char*>(data) + done * element_bytes;
    const uint64_t block_key = row_key + (done / block) * 0x9e3779b97f4a7c15ULL;
    hash += fmix64(hash_block(element_bytes, start, here) + block_key);
    if (totals != nullptr) add_block(dtype, start, here, *totals);
    done += here;
  } while (done < count);
  return hash;
}

uint64_t row_portable(DType dtype, const void* data, std::size_t count, uint64_t row_key, Totals* totals) {
  return row_of(dtype, data, count, row_key, totals);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t row_avx2(DType dtype, const void* data, std::size_t count,
                                                  uint64_t row_key, Totals* totals) {
  return row_of(dtype, data, count, row_key, totals);
}
#endif

using RowFunction = uint64_t (*)(DType, const void*, std::size_t, uint64_t, Totals*);

/// The norm of doubles whose squares leave the range of a double.
double scaled_norm(const double* values, std::size_t count, double largest) {
  const int exponent = std::ilogb(largest);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) continue;
    const double value = std::scalbn(values[i], -exponent);
    sum += value * value;
  }
  return std::scalbn(std::sqrt(sum), exponent);
}

double norm_of(const TensorView& tensor, const Totals& totals) {
  std::array<double, kLanes> lanes = totals.squares;
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  const double largest = std::max(std::abs(totals.min), std::abs(totals.max));
  const bool out_of_range = !std::isfinite(lanes[0]) || (lanes[0] < 1e-290 && largest > 0);
  if (tensor.dtype == DType::float64 && out_of_range) {
    return scaled_norm(static_cast<const double*>(tensor.data), static_cast<std::size_t>(tensor.elements()),
                       largest);
  }
  return std::sqrt(lanes[0]);
}

uint64_t hash_by(const TensorView& tensor, RowFunction row_function, Totals* totals) {
  const bool by_rows = !tensor.row_positions.empty();
  LOCKSTEP_CHECK(!by_rows || (!tensor.shape.empty() &&
                              tensor.row_positions.size() == static_cast<std::size_t>(tensor.shape[0])),
                 "a row-sharded tensor needs one position a row");
  if (!tensor.shape.empty() && tensor.shape[0] == 0) return 0;
  const auto elements = static_cast<std::size_t>(tensor.elements());
  uint64_t key = fmix64(static_cast<uint64_t>(tensor.dtype) + 0x7472616365ULL);
  for (int64_t extent : tensor.shape.subspan(by_rows ? 1 : 0)) {
    key = fmix64(key + static_cast<uint64_t>(extent) + 0x9e3779b97f4a7c15ULL);
  }
  if (!by_rows) return row_function(tensor.dtype, tensor.data, elements, fmix64(key), totals);
  const std::size_t row_elements = elements / tensor.row_positions.size();
  const char* row = static_cast<const char*>(tensor.data);
  uint64_t hash = 0;
  for (int64_t position : tensor.row_positions) {
    const uint64_t row_key = fmix64(key + static_cast<uint64_t>(position) * 0xd1b54a32d192ed03ULL);
    hash += row_function(tensor.dtype, row, row_elements, row_key, totals);
    row += row_elements * size_of(tensor.dtype);
  }
  return hash;
}

TensorStats stats_by(const TensorView& tensor, RowFunction row_function) {
  TensorStats stats;
  Totals totals;
  stats.hash = hash_by(tensor, row_function, &totals);
  if (!tensor.shape.empty() && tensor.shape[0] == 0) return stats;
  stats.nonfinite = totals.nonfinite;
  if (totals.nonfinite < static_cast<std::size_t>(tensor.elements())) {
    stats.norm = norm_of(tensor, totals);
    stats.min = totals.min;
    stats.max = totals.max;
  }
  return stats;
}

}  // namespace

namespace detail {

bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

TensorStats tensor_stats_portable(const TensorView& tensor) { return stats_by(tensor, row_portable); }

TensorStats tensor_stats_avx2(const TensorView& tensor) {
#if defined(__x86_64__)
  if (has_avx2()) return stats_by(tensor, row_avx2);
#endif
  return tensor_stats_portable(tensor);
}

}  // namespace detail

TensorStats tensor_stats(const TensorView& tensor) { return detail::tensor_stats_avx2(tensor); }

uint64_t tensor_hash(const TensorView& tensor) {
#if defined(__x86_64__)
  if (detail::has_avx2()) return hash_by(tensor, row_avx2, nullptr);
#endif
  return hash_by(tensor, row_portable, nullptr);
}

static_assert(std::endian::native == std::endian::little,
              "traces are little-endian and written as memory lies");

const char* name_of(Phase phase) {
  const auto number = static_cast<std::size_t>(phase);
  return number < kPhaseNames.size() ? kPhaseNames[number] : "unknown";
}

int place_of(Phase phase) {
  if (phase == Phase::applied_gradients) return 10 * static_cast<int>(Phase::gradient_norm) + 3;
  if (phase == Phase::optimizer_state) return 10 * static_cast<int>(Phase::parameters) + 3;
  if (phase == Phase::inputs) return 10 * static_cast<int>(Phase::random) + 3;
  if (phase == Phase::gradient_parts) return 10 * static_cast<int>(Phase::loss) + 3;
  if (phase == Phase::averaged_weights) return 10 * static_cast<int>(Phase::parameters) + 6;
  return 10 * static_cast<int>(phase);
}

std::span<const Phase> phases_in_order() {
  static const auto kOrdered = [] {
    std::array<Phase, static_cast<std::size_t>(kLastPhase) + 1> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Phase>(i);
    std::ranges::sort(all, {}, [](Phase phase) { return place_of(phase); });
    return all;
  }();
  return kOrdered;
}

std::size_t size_of(DType dtype) { return facts_of(dtype).bytes; }

const char* name_of(DType dtype) { return facts_of(dtype).name; }

double epsilon_of(DType dtype) { return facts_of(dtype).epsilon; }

double value_of_float16(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

int64_t TensorView::elements() const {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

uint64_t frame_head(uint32_t payload_bytes, FrameType type) {
  // The length has a check of its own: without it a damaged length would read as a trace that was cut short.
  const uint64_t head = payload_bytes | static_cast<uint64_t>(type) << 32;
  return head | (XXH3_64bits(&head, 5) & 0xffffff) << 40;
}

void append_definition(ByteSink& out, const Definition& definition) {
  out.raw(static_cast<uint8_t>(definition.kind));
  out.raw(static_cast<uint8_t>(definition.phase));
  const bool placed = definition.placement != nullptr;
  out.raw(static_cast<uint8_t>(definition.replicated | definition.has_stats << 1 | definition.has_ids << 2 |
                               definition.has_payload << 3 | definition.has_dot << 4 | placed << 5));
  out.raw(static_cast<uint8_t>(definition.dtype));
  out.varint(zigzag(definition.root));
  out.varint(definition.shape.size());
  for (int64_t extent : definition.shape) out.varint(zigzag(extent));
  out.text(definition.name);
  if (placed) {
    out.raw(static_cast<uint8_t>(definition.placement->shard));
    for (std::size_t i = 0; i < definition.shape.size(); ++i) {
      out.varint(zigzag(definition.placement->whole[i]));
      out.varint(zigzag(definition.placement->offset[i]));
    }
  }
  if (definition.kind != RecordKind::collective) return;
  out.text(definition.reduction);
  out.text(definition.group);
  out.text(definition.tag);
}

}  // namespace lockstep
