#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/verdict/trace/record.h"

namespace lockstep {
namespace {

std::vector<float> random_floats(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

TensorStats stats_of(const std::vector<float>& values) {
  const std::vector<int64_t> shape = {static_cast<int64_t>(values.size())};
  return tensor_stats({values.data(), DType::float32, shape, {}});
}

// The hash and the statistics again, in the plainest way and from the description alone.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

struct PlainKeys {
  std::vector<uint64_t> mask, key;
  PlainKeys() {
    uint64_t state = 0x6c6f636b73746570ULL;
    auto next = [&] {
      uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
      return z ^ (z >> 31);
    };
    for (int i = 0; i < 1024; ++i) {
      mask.push_back(next() >> 32);
      key.push_back(next() | 1);
    }
  }
};

TensorStats plain_stats(const std::vector<float>& values) {
  static const PlainKeys keys;
  TensorStats stats;
  double lanes[16] = {};
  bool any = false;
  const uint64_t tensor_key = mix(mix(0 + 0x7472616365ULL) + values.size() + 0x9e3779b97f4a7c15ULL);
  for (std::size_t start = 0; start < values.size(); start += 1024) {
    uint64_t sum = 0;
    for (std::size_t i = 0; i < 1024 && start + i < values.size(); ++i) {
      const float value = values[start + i];
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      sum += (bits ^ keys.mask[i]) * keys.key[i];
      if (!std::isfinite(value)) {
        ++stats.nonfinite;
        continue;
      }
      lanes[i % 16] += static_cast<double>(value) * value;
      stats.min = any ? std::min<double>(stats.min, value) : value;
      stats.max = any ? std::max<double>(stats.max, value) : value;
      any = true;
    }
    stats.hash += mix(sum + mix(tensor_key) + start / 1024 * 0x9e3779b97f4a7c15ULL);
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  stats.norm = std::sqrt(lanes[0]);
  return stats;
}

TEST(TensorStats, AgreesWithThePlainDescriptionAtEveryLength) {
  for (std::size_t count : {1, 2, 3, 7, 15, 16, 17, 31, 100, 1023, 1024, 1025, 2048, 5000}) {
    const std::vector<float> values = random_floats(count, static_cast<unsigned>(count));
    EXPECT_EQ(stats_of(values), plain_stats(values)) << count;
  }
}

TEST(TensorStats, AgreesWithThePlainDescriptionWhereValuesAreNotFinite) {
  std::vector<float> values = random_floats(3000, 3);
  values[5] = std::numeric_limits<float>::infinity();
  values[2047] = -std::numeric_limits<float>::infinity();
  values[2999] = std::numeric_limits<float>::quiet_NaN();
  values[3] = std::copysign(std::numeric_limits<float>::quiet_NaN(), -1.0F);
  const TensorStats stats = stats_of(values);
  EXPECT_EQ(stats, plain_stats(values));
  EXPECT_EQ(stats.nonfinite, 4u);
  EXPECT_TRUE(std::isfinite(stats.norm));
}

TEST(TensorStats, HasTheSameBitsOnEveryInstructionSet) {
  if (!detail::has_avx2()) GTEST_SKIP() << "this processor has no AVX2";
  std::vector<float> values = random_floats(20011, 4);
  for (int round = 0; round < 2; ++round) {
    for (DType dtype : {DType::float32, DType::float64, DType::int64, DType::bfloat16, DType::boolean, DType::float16,
                        DType::int32}) {
      const std::vector<int64_t> shape = {7, static_cast<int64_t>(20011 * 4 / 7 / size_of(dtype))};
      const std::vector<int64_t> positions = {3, 11, 19, 2, 0, 40, 41};
      for (bool by_rows : {false, true}) {
        const TensorView view{values.data(), dtype, shape,
                              by_rows ? std::span<const int64_t>(positions) : std::span<const int64_t>()};
        const TensorStats portable = detail::tensor_stats_portable(view),
                          avx2 = detail::tensor_stats_avx2(view);
        EXPECT_EQ(portable.hash, avx2.hash);
        EXPECT_EQ(portable.hash, tensor_hash(view));
        EXPECT_EQ(std::memcmp(&portable.norm, &avx2.norm, sizeof(double)), 0) << name_of(dtype);
        EXPECT_EQ(std::memcmp(&portable.min, &avx2.min, sizeof(double)), 0);
        EXPECT_EQ(std::memcmp(&portable.max, &avx2.max, sizeof(double)), 0);
        EXPECT_EQ(portable.nonfinite, avx2.nonfinite);
      }
    }
    values[77] = std::numeric_limits<float>::quiet_NaN();
  }
}

TEST(TensorStats, EverySingleBitChangesTheHash) {
  std::vector<float> values = random_floats(1100, 5);
  std::set<uint64_t> seen = {stats_of(values).hash};
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (int bit = 0; bit < 32; ++bit) {
      const float kept = values[i];
      uint32_t bits = 0;
      std::memcpy(&bits, &kept, sizeof bits);
      bits ^= 1u << bit;
      std::memcpy(&values[i], &bits, sizeof bits);
      EXPECT_TRUE(seen.insert(stats_of(values).hash).second) << i << " " << bit;
      values[i] = kept;
    }
  }
}

TEST(TensorStats, SeesOrderPositionShapeAndType) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::vector<float> swapped = {1, 3, 2, 4, 5, 6};
  const std::vector<float> zeros(6, 0.0F);
  EXPECT_NE(stats_of(values).hash, stats_of(swapped).hash);
  const std::vector<int64_t> flat = {6}, tall = {3, 2}, wide = {2, 3}, one = {1}, two = {2};
  const uint64_t a = tensor_stats({values.data(), DType::float32, flat, {}}).hash;
  const uint64_t b = tensor_stats({values.data(), DType::float32, tall, {}}).hash;
  const uint64_t c = tensor_stats({values.data(), DType::float32, wide, {}}).hash;
  EXPECT_EQ((std::set<uint64_t>{a, b, c}).size(), 3u);
  std::set<uint64_t> of_zero;
  for (DType dtype : {DType::float32, DType::float64, DType::int64, DType::bfloat16, DType::boolean, DType::float16,
                        DType::int32}) {
    of_zero.insert(tensor_stats({zeros.data(), dtype, one, {}}).hash);
  }
  EXPECT_EQ(of_zero.size(), 7u);
  EXPECT_NE(tensor_stats({zeros.data(), DType::float32, one, {}}).hash,
            tensor_stats({zeros.data(), DType::float32, two, {}}).hash);
}

TEST(TensorStats, HashesOfRowShardsAddUpToTheWhole) {
  const int64_t rows = 24, columns = 1500;
  const std::vector<float> values = random_floats(rows * columns, 6);
  std::vector<int64_t> all(rows);
  for (int64_t i = 0; i < rows; ++i) all[static_cast<std::size_t>(i)] = i;
  const std::vector<int64_t> whole_shape = {rows, columns};
  const uint64_t whole = tensor_stats({values.data(), DType::float32, whole_shape, all}).hash;
  uint64_t sum = 0, misplaced = 0;
  for (int64_t rank = 0; rank < 8; ++rank) {
    std::vector<float> shard;
    std::vector<int64_t> positions, wrong;
    for (int64_t k = 0; k < 3; ++k) {
      const int64_t row = k * 8 + rank;
      shard.insert(shard.end(), values.begin() + row * columns, values.begin() + (row + 1) * columns);
      positions.push_back(row);
      wrong.push_back(rank * 3 + k);
    }
    const std::vector<int64_t> shape = {3, columns};
    sum += tensor_stats({shard.data(), DType::float32, shape, positions}).hash;
    misplaced += tensor_stats({shard.data(), DType::float32, shape, wrong}).hash;
  }
  EXPECT_EQ(sum, whole);
  EXPECT_NE(misplaced, whole);
}

TEST(TensorStats, KnowsNormAndExtremesOfEveryType) {
  const std::vector<int64_t> shape = {3};
  const std::vector<double> doubles = {3e200, -4e200, 0};
  const TensorStats large = tensor_stats({doubles.data(), DType::float64, shape, {}});
  EXPECT_DOUBLE_EQ(large.norm, 5e200);
  EXPECT_EQ(large.min, -4e200);
  const std::vector<int64_t> integers = {-3, 4, 0};
  const TensorStats whole = tensor_stats({integers.data(), DType::int64, shape, {}});
  EXPECT_EQ(whole.norm, 5);
  EXPECT_EQ(whole.max, 4);
  const std::vector<uint16_t> brains = {0x4040, 0xc080, 0x7f80};  // 3, -4, infinity
  const TensorStats half = tensor_stats({brains.data(), DType::bfloat16, shape, {}});
  EXPECT_EQ(half.norm, 5);
  EXPECT_EQ(half.nonfinite, 1u);
  const std::vector<uint8_t> flags = {1, 0, 1};
  EXPECT_EQ(tensor_stats({flags.data(), DType::boolean, shape, {}}).norm, std::sqrt(2.0));
}

TEST(TensorStats, OfNothingOrNoFiniteValueIsZero) {
  const std::vector<int64_t> empty = {0, 4}, scalar = {};
  EXPECT_EQ(tensor_stats({nullptr, DType::float32, empty, {}}), TensorStats{});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const TensorStats stats = tensor_stats({&nan, DType::float32, scalar, {}});
  EXPECT_EQ(stats.nonfinite, 1u);
  EXPECT_EQ(stats.norm, 0);
  EXPECT_EQ(stats.min, 0);
}

}  // namespace
}  // namespace lockstep
