// The hashes that docs/trace.md describes, computed from the page alone, are those of this build.

#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/verdict/trace/record.h"

namespace lockstep {
namespace {

DType dtype_named(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(kLastDType); ++i) {
    if (name == name_of(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  throw std::invalid_argument(name);
}

std::vector<uint8_t> bytes_of(const std::string& hex) {
  std::vector<uint8_t> bytes(hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, bytes[i], 16);
  }
  return bytes;
}

TEST(Conformance, TensorsHaveTheHashesOfThePage) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/tests/conformance/vectors.json");
  const nlohmann::json vectors = nlohmann::json::parse(file);
  ASSERT_GE(vectors.size(), 16u);
  for (const nlohmann::json& each : vectors) {
    const std::vector<uint8_t> bytes = bytes_of(each["bytes"]);
    const auto shape = each["shape"].get<std::vector<int64_t>>();
    const auto positions = each.value("positions", std::vector<int64_t>{});
    uint64_t expected = 0;
    const auto text = each["hash"].get<std::string>();
    std::from_chars(text.data(), text.data() + text.size(), expected, 16);
    EXPECT_EQ(tensor_stats({bytes.data(), dtype_named(each["dtype"]), shape, positions}).hash, expected) << each.dump();
  }
}

TEST(Conformance, HalfPrecisionNumbersAreThoseOfIeee754) {
  EXPECT_EQ(value_of_float16(0x3c00), 1);
  EXPECT_EQ(value_of_float16(0xc000), -2);
  EXPECT_EQ(value_of_float16(0x7bff), 65504);
  EXPECT_EQ(value_of_float16(0x0001), 0x1p-24);
  EXPECT_EQ(value_of_float16(0x0400), 0x1p-14);
  EXPECT_TRUE(std::isinf(value_of_float16(0xfc00)));
  EXPECT_TRUE(std::isnan(value_of_float16(0x7e00)));
}

}  // namespace
}  // namespace lockstep
