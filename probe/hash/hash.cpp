#include "probe/hash/hash.h"

#include <xxhash.h>

#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "harness/judge/trace/record.h"

namespace {

using lockstep::DType;

/// A tensor in memory, with the positions of its rows.
struct Tensor {
  std::vector<int64_t> positions;
  lockstep::TensorView view;

  Tensor(const void* data, int dtype, int dimensions, const int64_t* shape, int64_t first_position) {
    view.data = data;
    view.dtype = static_cast<DType>(dtype);
    view.shape = {shape, static_cast<std::size_t>(dimensions)};
    if (first_position < 0 || dimensions == 0) return;
    positions.resize(static_cast<std::size_t>(shape[0]));
    std::iota(positions.begin(), positions.end(), first_position);
    view.row_positions = positions;
  }
};

template <typename T>
unsigned char* put(unsigned char* at, T value) {
  std::memcpy(at, &value, sizeof value);
  return at + sizeof value;
}

}  // namespace

int lockstep_hash_version(void) { return 1; }

uint64_t lockstep_xxh3(const void* data, uint64_t bytes) { return XXH3_64bits(data, bytes); }

uint64_t lockstep_tensor_hash(const void* data, int dtype, int dimensions, const int64_t* shape, int64_t first_position) {
  return lockstep::tensor_hash(Tensor(data, dtype, dimensions, shape, first_position).view);
}

int lockstep_tensor_record(const void* data, int dtype, int dimensions, const int64_t* shape, int64_t first_position, unsigned char* record) {
  const Tensor tensor(data, dtype, dimensions, shape, first_position);
  const lockstep::TensorStats stats = lockstep::tensor_stats(tensor.view);
  unsigned char* at = put(record, stats.hash);
  const DType kind = tensor.view.dtype;
  const bool wide = kind == DType::float64 || kind == DType::int64 || kind == DType::int32;
  for (const double number : {stats.norm, stats.min, stats.max}) at = wide ? put(at, number) : put(at, static_cast<float>(number));
  uint64_t left = stats.nonfinite;
  for (; left >= 0x80; left >>= 7) *at++ = static_cast<unsigned char>(left | 0x80);
  *at++ = static_cast<unsigned char>(left);
  return static_cast<int>(at - record);
}

void lockstep_row_hashes(const void* data, int dtype, int dimensions, const int64_t* shape, uint64_t* hashes) {
  if (dimensions == 0) return;
  std::size_t bytes = size_of(static_cast<DType>(dtype));
  for (int i = 1; i < dimensions; ++i) bytes *= static_cast<std::size_t>(shape[i]);
  for (int64_t row = 0; row < shape[0]; ++row) {
    hashes[row] = lockstep_tensor_hash(static_cast<const char*>(data) + static_cast<std::size_t>(row) * bytes, dtype, dimensions - 1, shape + 1, -1);
  }
}
