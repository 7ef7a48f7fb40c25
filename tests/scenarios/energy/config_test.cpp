#include "scenarios/energy/config.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep {
namespace {

struct Anything {
  template <class T>
  operator T() const;
};

template <class T, class... Some>
constexpr std::size_t member_count() {
  if constexpr (requires { T{Some{}..., Anything{}}; }) {
    return member_count<T, Some..., Anything>();
  } else {
    return sizeof...(Some);
  }
}

std::size_t keys_in_group(std::string_view prefix) {
  return static_cast<std::size_t>(std::ranges::count_if(
      energy_fields(), [prefix](const RunField& field) { return field.spec.key.starts_with(prefix); }));
}

TEST(EnergyFields, CoverEveryMemberOfTheStructs) {
  constexpr std::size_t kGroups = 3;
  EXPECT_EQ(keys_in_group("data."), member_count<WindowConfig>());
  EXPECT_EQ(keys_in_group("model."), member_count<ModelConfig>());
  EXPECT_EQ(keys_in_group("layer."), member_count<LayerNegativesConfig>());
  const std::size_t grouped = keys_in_group("data.") + keys_in_group("model.") + keys_in_group("layer.");
  EXPECT_EQ(energy_fields().size() - grouped, member_count<EnergyConfig>() - kGroups);
}

}  // namespace
}  // namespace lockstep
