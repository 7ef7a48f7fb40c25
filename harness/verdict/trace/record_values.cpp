#include "harness/verdict/trace/record_values.h"

#include <bit>
#include <cmath>
#include <cstring>

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

}  // namespace

std::optional<std::vector<double>> values_of(const Record& record) {
  std::size_t bytes = size_of(record.dtype);
  for (const int64_t extent : record.shape) bytes *= static_cast<std::size_t>(extent);
  const bool tensor = !record.is_scalar && record.phase != Phase::collective && record.phase != Phase::samples &&
                      record.phase != Phase::random;
  if (!tensor || record.payload.size() != bytes) return std::nullopt;
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

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 0x1p-52;
    case DType::float32:
      return 0x1p-23;
    case DType::float16:
      return 0x1p-10;
    case DType::bfloat16:
      return 0x1p-7;
    default:
      return 0;
  }
}

bool is_floating(DType dtype) { return epsilon_of(dtype) > 0; }

bool equal_as_numbers(const Record& a, const Record& b) {
  if (a.dtype != b.dtype || a.shape != b.shape || !is_floating(a.dtype)) return false;
  const auto x = values_of(a), y = values_of(b);
  return x && y && *x == *y;
}

}  // namespace lockstep
